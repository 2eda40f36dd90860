"""The compiled function that prefetches memory (`prefetch.py`)."""

from __future__ import annotations

PREPARE = "nnc_prepare"


def prepare_text(page_bytes: int) -> str:
    """Returns the function `nnc_prepare(rows, count, stop) -> i64`, as LLVM's text.

    It fills memory row by row (where to, where from, bytes), page by page, until the word `stop` is not 0; returns how many rows
    are done. Where both places are the same, all pages are written to, with their own content: bytes that others write meanwhile
    stay.
    """
    return f"""
define i64 @{PREPARE}(ptr %rows, i64 %count, ptr %stop) nounwind {{
entry:
  %some = icmp sgt i64 %count, 0
  br i1 %some, label %row, label %done
row:
  %i = phi i64 [ 0, %entry ], [ %next, %end ]
  %to.at = getelementptr [3 x i64], ptr %rows, i64 %i
  %from.at = getelementptr i8, ptr %to.at, i64 8
  %bytes.at = getelementptr i8, ptr %to.at, i64 16
  %to = load ptr, ptr %to.at
  %from = load ptr, ptr %from.at
  %bytes = load i64, ptr %bytes.at
  %stays = icmp eq ptr %to, %from
  br label %page
page:
  %offset = phi i64 [ 0, %row ], [ %further, %made ]
  %left = sub i64 %bytes, %offset
  %more = icmp sgt i64 %left, 0
  br i1 %more, label %ask, label %end
ask:
  %word = load atomic i32, ptr %stop monotonic, align 4
  %goes.on = icmp eq i32 %word, 0
  br i1 %goes.on, label %write, label %done
write:
  %target = getelementptr i8, ptr %to, i64 %offset
  br i1 %stays, label %touch, label %copy
touch:
  %same = cmpxchg ptr %target, i8 0, i8 0 monotonic monotonic
  br label %made
copy:
  %source = getelementptr i8, ptr %from, i64 %offset
  %is.short = icmp slt i64 %left, {page_bytes}
  %length = select i1 %is.short, i64 %left, i64 {page_bytes}
  call ptr @memcpy(ptr %target, ptr %source, i64 %length)
  br label %made
made:
  %further = add i64 %offset, {page_bytes}
  br label %page
end:
  %next = add i64 %i, 1
  %rows.left = icmp slt i64 %next, %count
  br i1 %rows.left, label %row, label %done
done:
  %ready = phi i64 [ 0, %entry ], [ %i, %ask ], [ %next, %end ]
  ret i64 %ready
}}
declare ptr @memcpy(ptr, ptr, i64)
"""
