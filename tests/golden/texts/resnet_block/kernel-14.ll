define i64 @KERNEL(ptr %p0, ptr %p1, ptr %p2, ptr %p3, ptr %p4) nounwind {
entry:
  br label %start
start:
  br label %test3
test3:
  %v4 = phi i64 [0, %start], [%v34, %body1]
  %v5 = icmp slt i64 %v4, 16
  br i1 %v5, label %body1, label %done2
body1:
  %v6 = mul i64 %v4, 32
  %v8 = mul i64 %v6, 4
  %v9 = getelementptr i8, ptr %p0, i64 %v8
  %v10 = load <16 x float>, ptr %v9, align 4
  %v11 = fmul <16 x float> %v10, splat (float 0x3FECCCCCC0000000)
  %v12 = getelementptr i8, ptr %p1, i64 %v8
  %v13 = load <16 x float>, ptr %v12, align 4
  %v14 = fadd <16 x float> %v11, %v13
  %v15 = getelementptr i8, ptr %p2, i64 %v8
  %v16 = load <16 x float>, ptr %v15, align 4
  %v17 = fmul <16 x float> %v14, splat (float 0xBFB99999A0000000)
  %v18 = fadd <16 x float> %v16, %v17
  %v20 = getelementptr i8, ptr %v9, i64 64
  %v21 = load <16 x float>, ptr %v20, align 4
  %v22 = fmul <16 x float> %v21, splat (float 0x3FECCCCCC0000000)
  %v23 = getelementptr i8, ptr %v12, i64 64
  %v24 = load <16 x float>, ptr %v23, align 4
  %v25 = fadd <16 x float> %v22, %v24
  %v26 = getelementptr i8, ptr %v15, i64 64
  %v27 = load <16 x float>, ptr %v26, align 4
  %v28 = fmul <16 x float> %v25, splat (float 0xBFB99999A0000000)
  %v29 = fadd <16 x float> %v27, %v28
  %v30 = getelementptr i8, ptr %p3, i64 %v8
  store <16 x float> %v14, ptr %v30, align 4
  %v31 = getelementptr i8, ptr %p4, i64 %v8
  store <16 x float> %v18, ptr %v31, align 4
  %v32 = getelementptr i8, ptr %v30, i64 64
  store <16 x float> %v25, ptr %v32, align 4
  %v33 = getelementptr i8, ptr %v31, i64 64
  store <16 x float> %v29, ptr %v33, align 4
  %v34 = add i64 %v4, 1
  br label %test3
done2:
  ret i64 0
}
