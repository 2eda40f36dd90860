define i64 @KERNEL(ptr %in0, ptr %out0) nounwind {
entry:
  br label %start
start:
  %v1 = load i32, ptr %in0, align 4
  %v7 = insertelement <16 x i32> poison, i32 %v1, i64 0
  %v8 = shufflevector <16 x i32> %v7, <16 x i32> poison, <16 x i32> zeroinitializer
  br label %body2
body2:
  %v4 = phi i64 [0, %start], [%v9, %body2]
  %v5 = mul i64 %v4, 4
  %v6 = getelementptr i8, ptr %out0, i64 %v5
  store <16 x i32> %v8, ptr %v6, align 4
  %v9 = add i64 %v4, 16
  %v10 = icmp slt i64 %v9, 64
  br i1 %v10, label %body2, label %done3
done3:
  ret i64 0
}
