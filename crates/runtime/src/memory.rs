//! The functions that compiled Rust calls by itself: copying, filling and comparing memory.
//!
//! A program may have its own `memcpy`, which would be ours too, in handlers and with locks held: it may store to PM, or count its
//! calls. So these are our own, hidden, and nobody else's. They are as fast as need be for the few dozen bytes that the runtime moves.

std::arch::global_asm!(
    ".pushsection .text.crashproof_memory, \"ax\", @progbits",
    ".irp name, memcpy, memmove, memset, memcmp, bcmp, strlen",
    ".globl crashproof_\\name",
    ".hidden crashproof_\\name",
    ".type crashproof_\\name, @function",
    ".endr",
    // Both load everything before they store, up to 64 bytes.
    "crashproof_memcpy:",
    "crashproof_memmove:",
    "mov rax, rdi",
    "cmp rdx, 16",
    "jae 5f",
    "cmp edx, 8",
    "jae 4f",
    "cmp edx, 4",
    "jae 3f",
    "cmp edx, 2",
    "jae 2f",
    "test edx, edx",
    "jz 1f",
    "movzx ecx, byte ptr [rsi]",
    "mov byte ptr [rdi], cl",
    "1: ret",
    "2: movzx ecx, word ptr [rsi]",
    "movzx r8d, word ptr [rsi + rdx - 2]",
    "mov word ptr [rdi], cx",
    "mov word ptr [rdi + rdx - 2], r8w",
    "ret",
    "3: mov ecx, dword ptr [rsi]",
    "mov r8d, dword ptr [rsi + rdx - 4]",
    "mov dword ptr [rdi], ecx",
    "mov dword ptr [rdi + rdx - 4], r8d",
    "ret",
    "4: mov rcx, qword ptr [rsi]",
    "mov r8, qword ptr [rsi + rdx - 8]",
    "mov qword ptr [rdi], rcx",
    "mov qword ptr [rdi + rdx - 8], r8",
    "ret",
    "5: cmp rdx, 32",
    "ja 6f",
    "movups xmm0, xmmword ptr [rsi]",
    "movups xmm1, xmmword ptr [rsi + rdx - 16]",
    "movups xmmword ptr [rdi], xmm0",
    "movups xmmword ptr [rdi + rdx - 16], xmm1",
    "ret",
    "6: cmp rdx, 64",
    "ja 7f",
    "movups xmm0, xmmword ptr [rsi]",
    "movups xmm1, xmmword ptr [rsi + 16]",
    "movups xmm2, xmmword ptr [rsi + rdx - 32]",
    "movups xmm3, xmmword ptr [rsi + rdx - 16]",
    "movups xmmword ptr [rdi], xmm0",
    "movups xmmword ptr [rdi + 16], xmm1",
    "movups xmmword ptr [rdi + rdx - 32], xmm2",
    "movups xmmword ptr [rdi + rdx - 16], xmm3",
    "ret",
    "7: mov rcx, rdi",
    "sub rcx, rsi",
    "cmp rcx, rdx",
    "mov rcx, rdx",
    "jb 8f",
    "rep movsb",
    "ret",
    // The target begins within the source.
    "8: lea rdi, [rdi + rdx - 1]",
    "lea rsi, [rsi + rdx - 1]",
    "std",
    "rep movsb",
    "cld",
    "ret",
    "crashproof_memset:",
    "mov r8, rdi",
    "movzx eax, sil",
    "cmp rdx, 64",
    "ja 3f",
    "movabs rcx, 0x0101010101010101",
    "imul rax, rcx",
    "cmp edx, 8",
    "jb 2f",
    "lea rcx, [rdi + rdx - 8]",
    "1: mov qword ptr [rdi], rax",
    "add rdi, 8",
    "cmp rdi, rcx",
    "jb 1b",
    "mov qword ptr [rcx], rax",
    "mov rax, r8",
    "ret",
    "2: test edx, edx",
    "jz 4f",
    "mov byte ptr [rdi], al",
    "inc rdi",
    "dec edx",
    "jmp 2b",
    "3: mov rcx, rdx",
    "rep stosb",
    "4: mov rax, r8",
    "ret",
    "crashproof_memcmp:",
    "crashproof_bcmp:",
    "xor ecx, ecx",
    "1: lea r8, [rcx + 8]",
    "cmp r8, rdx",
    "ja 2f",
    "mov rax, qword ptr [rdi + rcx]",
    "cmp rax, qword ptr [rsi + rcx]",
    "jne 2f",
    "mov rcx, r8",
    "jmp 1b",
    "2: cmp rcx, rdx",
    "jae 3f",
    "movzx eax, byte ptr [rdi + rcx]",
    "movzx r8d, byte ptr [rsi + rcx]",
    "inc rcx",
    "sub eax, r8d",
    "jz 2b",
    "ret",
    "3: xor eax, eax",
    "ret",
    "crashproof_strlen:",
    "xor eax, eax",
    "1: cmp byte ptr [rdi + rax], 0",
    "je 2f",
    "inc rax",
    "jmp 1b",
    "2: ret",
    ".popsection",
);

// The tests are programs of their own, with libc's.
#[cfg(not(test))]
std::arch::global_asm!(
    ".irp name, memcpy, memmove, memset, memcmp, bcmp, strlen",
    ".globl \\name",
    ".hidden \\name",
    ".set \\name, crashproof_\\name",
    ".endr",
);

#[cfg(test)]
mod tests {
    unsafe extern "C" {
        fn crashproof_memmove(to: *mut u8, from: *const u8, length: usize) -> *mut u8;
        fn crashproof_memset(to: *mut u8, byte: i32, length: usize) -> *mut u8;
        fn crashproof_memcmp(a: *const u8, b: *const u8, length: usize) -> i32;
        fn crashproof_strlen(text: *const u8) -> usize;
    }

    fn bytes() -> Vec<u8> {
        (0..400u32).map(|n| (n * 7 % 251) as u8 + 1).collect()
    }

    #[test]
    fn moves_and_fills_as_the_slices_do() {
        for length in 0..150 {
            for (from, to) in [
                (0, 200),
                (200, 0),
                (10, 11),
                (11, 10),
                (10, 40),
                (40, 10),
                (5, 5),
                (0, 100),
            ] {
                let (mut ours, mut theirs) = (bytes(), bytes());
                theirs.copy_within(from..from + length, to);
                let start = ours.as_mut_ptr();
                // SAFETY: both ranges are in the vector.
                let result = unsafe { crashproof_memmove(start.add(to), start.add(from), length) };
                assert_eq!(
                    (result, &ours),
                    (start.wrapping_add(to), &theirs),
                    "{length} {from} {to}"
                );
            }
            let (mut ours, mut theirs) = (bytes(), bytes());
            theirs[3..3 + length].fill(0xa5);
            let start = ours.as_mut_ptr().wrapping_add(3);
            // SAFETY: within the vector.
            assert_eq!(unsafe { crashproof_memset(start, 0x7a5, length) }, start);
            assert_eq!(ours, theirs, "{length}");
        }
    }

    #[test]
    fn compares_as_the_slices_do() {
        for length in 0..40 {
            let a = bytes();
            for differs in 0..length + 2 {
                for by in [1, -1] {
                    let mut b = a.clone();
                    b[differs] = b[differs].wrapping_add_signed(by);
                    // SAFETY: both are longer.
                    let result = unsafe { crashproof_memcmp(a.as_ptr(), b.as_ptr(), length) };
                    assert_eq!(result.cmp(&0), a[..length].cmp(&b[..length]), "{length} {differs}");
                }
            }
            let mut text = bytes();
            text[length] = 0;
            // SAFETY: there is a zero.
            assert_eq!(unsafe { crashproof_strlen(text.as_ptr()) }, length);
        }
    }
}
