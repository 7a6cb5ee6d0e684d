int plain_value(void);
int macro_value(void);

int main(void)
{
	return plain_value() + macro_value() == 15 ? 0 : 1;
}
