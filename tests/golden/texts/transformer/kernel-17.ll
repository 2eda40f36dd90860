define i64 @KERNEL(ptr %in0, ptr %in1, ptr %in2, ptr %out0) nounwind {
entry:
  %v1 = alloca i8, i64 8, align 64
  %v5 = alloca i1, align 64
  br label %start
start:
  %flag = getelementptr i8, ptr %v1, i64 0
  store i64 0, ptr %flag
  %v2 = icmp ne ptr %in0, %out0
  br i1 %v2, label %then3, label %after4
then3:
  call void @llvm.memcpy.p0.p0.i64(ptr %out0, ptr %in0, i64 25600, i1 false)
  br label %after4
after4:
  store i1 false, ptr %v5
  br label %body6
body6:
  %v8 = phi i64 [0, %after4], [%v24, %body6]
  %v9 = mul i64 %v8, 200
  %v10 = getelementptr i8, ptr %out0, i64 %v9
  %v11 = mul i64 %v8, 8
  %v12 = getelementptr i8, ptr %in2, i64 %v11
  %v13 = load i64, ptr %v12, align 8
  %v14 = icmp ult i64 %v13, 50
  %v15 = select i1 %v14, i64 %v13, i64 0
  %v16 = mul i64 %v15, 4
  %v17 = load i1, ptr %v5
  %v18 = xor i1 %v14, true
  %v19 = or i1 %v17, %v18
  store i1 %v19, ptr %v5
  %v20 = getelementptr i8, ptr %v10, i64 %v16
  %v21 = load float, ptr %in1, align 4
  %v22 = load float, ptr %v20, align 4
  %v23 = fadd float %v22, %v21
  store float %v23, ptr %v20, align 4
  %v24 = add i64 %v8, 1
  %v25 = icmp slt i64 %v24, 128
  br i1 %v25, label %body6, label %done7
done7:
  %v26 = load i1, ptr %v5
  br i1 %v26, label %then27, label %after28
then27:
  store atomic i64 1, ptr %flag monotonic, align 8
  br label %after28
after28:
  %v29 = load atomic i64, ptr %flag monotonic, align 8
  ret i64 %v29
}

declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
