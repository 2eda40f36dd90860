define i64 @KERNEL(ptr %in0, ptr %in1, ptr %out0) nounwind {
entry:
  br label %start
start:
  %all = getelementptr i8, ptr %out0, i64 0
  %v1 = load i64, ptr %in1, align 8
  %v7 = insertelement <8 x i64> poison, i64 %v1, i64 0
  %v8 = shufflevector <8 x i64> %v7, <8 x i64> poison, <8 x i32> zeroinitializer
  br label %body2
body2:
  %v4 = phi i64 [0, %start], [%v9, %body2]
  %v5 = mul i64 %v4, 8
  %v6 = getelementptr i8, ptr %all, i64 %v5
  store <8 x i64> %v8, ptr %v6, align 8
  %v9 = add i64 %v4, 8
  %v10 = icmp slt i64 %v9, 1600
  br i1 %v10, label %body2, label %done3
done3:
  %inner = getelementptr i8, ptr %out0, i64 0
  br label %body11
body11:
  %v13 = phi i64 [0, %done3], [%v19, %body11]
  %v14 = mul i64 %v13, 8
  %v15 = getelementptr i8, ptr %in0, i64 %v14
  %v16 = load i64, ptr %v15, align 8
  %v17 = mul i64 %v13, 328
  %v18 = getelementptr i8, ptr %inner, i64 %v17
  store i64 %v16, ptr %v18, align 8
  %v19 = add i64 %v13, 1
  %v20 = icmp slt i64 %v19, 40
  br i1 %v20, label %body11, label %done12
done12:
  ret i64 0
}
