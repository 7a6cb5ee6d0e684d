	.text
	.globl	plain_value
	.type	plain_value, @function
plain_value:
	movl	$7, %eax
	ret
	.size	plain_value, .-plain_value
	.section	.note.GNU-stack,"",@progbits
