define i64 @KERNEL(ptr %p0, ptr %p1, ptr %p2) nounwind {
entry:
  br label %start
start:
  %v15 = getelementptr i8, ptr %p0, i64 64
  br label %test3
test3:
  %v4 = phi i64 [0, %start], [%v22, %body1]
  %v5 = icmp slt i64 %v4, 512
  br i1 %v5, label %body1, label %done2
body1:
  %v6 = mul i64 %v4, 128
  %v7 = getelementptr i8, ptr %p1, i64 %v6
  %v8 = load <16 x float>, ptr %v7, align 4
  %v9 = load <16 x float>, ptr %p0, align 4
  %v10 = fsub <16 x float> splat (float 0x0000000000000000), %v9
  %v11 = fmul <16 x float> %v10, splat (float 0x3F60000000000000)
  %v12 = fadd <16 x float> %v8, %v11
  %v13 = getelementptr i8, ptr %v7, i64 64
  %v14 = load <16 x float>, ptr %v13, align 4
  %v16 = load <16 x float>, ptr %v15, align 4
  %v17 = fsub <16 x float> splat (float 0x0000000000000000), %v16
  %v18 = fmul <16 x float> %v17, splat (float 0x3F60000000000000)
  %v19 = fadd <16 x float> %v14, %v18
  %v20 = getelementptr i8, ptr %p2, i64 %v6
  store <16 x float> %v12, ptr %v20, align 4
  %v21 = getelementptr i8, ptr %v20, i64 64
  store <16 x float> %v19, ptr %v21, align 4
  %v22 = add i64 %v4, 1
  br label %test3
done2:
  ret i64 0
}
