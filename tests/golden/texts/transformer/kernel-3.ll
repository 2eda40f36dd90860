declare <16 x float> @llvm.fabs.v16f32(<16 x float>)
declare i1 @llvm.vector.reduce.and.v16i1(<16 x i1>)
define i64 @KERNEL(ptr %p0, ptr %p1, ptr %p2) nounwind {
entry:
  %v6 = alloca <16 x i1>, align 64
  br label %start
start:
  br label %test3
test3:
  %v4 = phi i64 [0, %start], [%v20, %body1]
  %v5 = icmp slt i64 %v4, 512
  br i1 %v5, label %body1, label %done2
body1:
  store <16 x i1> splat (i1 true), ptr %v6
  %v7 = mul i64 %v4, 64
  %v8 = getelementptr i8, ptr %p0, i64 %v7
  %v9 = load <16 x float>, ptr %v8, align 4
  %v10 = call <16 x float> @llvm.fabs.v16f32(<16 x float> %v9)
  %v11 = fcmp olt <16 x float> %v10, splat (float 0x7FF0000000000000)
  %v12 = load <16 x i1>, ptr %v6
  %v13 = and <16 x i1> %v12, %v11
  store <16 x i1> %v13, ptr %v6
  %v14 = select <16 x i1> %v11, <16 x float> %v9, <16 x float> splat (float 0x0000000000000000)
  %v15 = getelementptr i8, ptr %p1, i64 %v7
  store <16 x float> %v14, ptr %v15, align 4
  %v16 = load <16 x i1>, ptr %v6
  %v17 = call i1 @llvm.vector.reduce.and.v16i1(<16 x i1> %v16)
  %v18 = getelementptr i8, ptr %p2, i64 %v4
  %v19 = zext i1 %v17 to i8
  store i8 %v19, ptr %v18, align 1
  %v20 = add i64 %v4, 1
  br label %test3
done2:
  ret i64 0
}
