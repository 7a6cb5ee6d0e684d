#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {
struct Noisy {
	std::string name;
	~Noisy() { std::cout << "gone " << name << "\n"; }
};
}

int main()
{
	std::vector<int> numbers{1, 2, 3};
	try {
		Noisy noisy{"first"};
		if (numbers.at(2) == 3)
			throw std::runtime_error("thrown");
	} catch (const std::exception &caught) {
		std::cout << caught.what() << "\n";
	}
	return 0;
}
