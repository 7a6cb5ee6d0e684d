int broken(void)
{
	return undeclared;
}
