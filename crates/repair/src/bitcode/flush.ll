; Flushes every cache line of a range, by clwb, else clflushopt, else clflush, as the processor has it.

@crashproof.flush.kind = weak_odr hidden global i8 0

define weak_odr hidden i8 @crashproof.flush.choose() noinline nounwind {
entry:
  %zero = call { i32, i32, i32, i32 } asm "cpuid", "={ax},={bx},={cx},={dx},{ax},{cx},~{dirflag},~{fpsr},~{flags}"(i32 0, i32 0)
  %highest = extractvalue { i32, i32, i32, i32 } %zero, 0
  %has.seven = icmp uge i32 %highest, 7
  br i1 %has.seven, label %ask, label %done

ask:
  %seven = call { i32, i32, i32, i32 } asm "cpuid", "={ax},={bx},={cx},={dx},{ax},{cx},~{dirflag},~{fpsr},~{flags}"(i32 7, i32 0)
  %features = extractvalue { i32, i32, i32, i32 } %seven, 1
  %clwb.bit = and i32 %features, 16777216
  %clwb = icmp ne i32 %clwb.bit, 0
  %clflushopt.bit = and i32 %features, 8388608
  %clflushopt = icmp ne i32 %clflushopt.bit, 0
  %older = select i1 %clflushopt, i8 2, i8 1
  %best = select i1 %clwb, i8 3, i8 %older
  br label %done

done:
  %kind = phi i8 [ 1, %entry ], [ %best, %ask ]
  store atomic i8 %kind, ptr @crashproof.flush.kind monotonic, align 1
  ret i8 %kind
}

define weak_odr hidden void @crashproof.flush(ptr %at, i64 %length) nounwind {
entry:
  %nothing = icmp eq i64 %length, 0
  br i1 %nothing, label %end, label %look

look:
  %known = load atomic i8, ptr @crashproof.flush.kind monotonic, align 1
  %is.known = icmp ne i8 %known, 0
  br i1 %is.known, label %start, label %choose

choose:
  %chosen = call i8 @crashproof.flush.choose()
  br label %start

start:
  %kind = phi i8 [ %known, %look ], [ %chosen, %choose ]
  %from = ptrtoint ptr %at to i64
  %first = and i64 %from, -64
  %limit = add i64 %from, %length
  br label %line

line:
  %this = phi i64 [ %first, %start ], [ %next, %flushed ]
  %pointer = inttoptr i64 %this to ptr
  switch i8 %kind, label %clflush [ i8 2, label %clflushopt
                                    i8 3, label %clwb ]

clwb:
  call void asm sideeffect "clwb $0", "*m,~{memory},~{dirflag},~{fpsr},~{flags}"(ptr elementtype(i8) %pointer)
  br label %flushed

clflushopt:
  call void asm sideeffect "clflushopt $0", "*m,~{memory},~{dirflag},~{fpsr},~{flags}"(ptr elementtype(i8) %pointer)
  br label %flushed

clflush:
  call void asm sideeffect "clflush $0", "*m,~{memory},~{dirflag},~{fpsr},~{flags}"(ptr elementtype(i8) %pointer)
  br label %flushed

flushed:
  %next = add i64 %this, 64
  %more = icmp ult i64 %next, %limit
  br i1 %more, label %line, label %end

end:
  ret void
}
