# void vendor_set(uint64_t *cell, uint64_t value)
	.text
	.globl	vendor_set
	.type	vendor_set, @function
vendor_set:
	.cfi_startproc
	movq	%rsi, (%rdi)
	ret
	.cfi_endproc
	.size	vendor_set, .-vendor_set
	.section	.note.GNU-stack,"",@progbits
