int warned(int unused)
{
	int other;
	return 0;
}
