define i64 @KERNEL(ptr %p0, ptr %p1, ptr %p2, ptr %p3) nounwind {
entry:
  br label %start
start:
  br label %test3
test3:
  %v4 = phi i64 [0, %start], [%v17, %body1]
  %v5 = icmp slt i64 %v4, 1600
  br i1 %v5, label %body1, label %done2
body1:
  %v6 = mul i64 %v4, 64
  %v7 = getelementptr i8, ptr %p0, i64 %v6
  %v8 = load <16 x float>, ptr %v7, align 4
  %v9 = load <16 x float>, ptr %p1, align 4
  %v10 = fadd <16 x float> %v8, %v9
  %v11 = fcmp ole <16 x float> %v10, splat (float 0x0000000000000000)
  %v12 = select <16 x i1> %v11, <16 x float> splat (float 0x0000000000000000), <16 x float> %v10
  %v13 = mul i64 %v4, 16
  %v14 = getelementptr i8, ptr %p2, i64 %v13
  %v15 = zext <16 x i1> %v11 to <16 x i8>
  store <16 x i8> %v15, ptr %v14, align 1
  %v16 = getelementptr i8, ptr %p3, i64 %v6
  store <16 x float> %v12, ptr %v16, align 4
  %v17 = add i64 %v4, 1
  br label %test3
done2:
  ret i64 0
}
