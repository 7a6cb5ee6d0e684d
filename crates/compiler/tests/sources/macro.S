#define VALUE 8
	.text
	.globl	macro_value
	.type	macro_value, @function
macro_value:
	movl	$VALUE, %eax
	ret
	.size	macro_value, .-macro_value
	.section	.note.GNU-stack,"",@progbits
