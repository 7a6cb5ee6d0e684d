//! What `crashproof cc --help` says.

pub(super) const TEXT: &str = "\
Usage: crashproof cc  [--deps] [any option of clang] FILE...
       crashproof c++ [--deps] [any option of clang] FILE...

Compiles as clang-19 does, with the same options and results, and also

  - records what the code does to persistent memory without a fault for each store, when it runs under crashproof;
    without crashproof it runs as it always did
  - notes for every store the source line, the type and the field that it writes
  - keeps the source as bitcode in the object, in sections that are not loaded

Build a project with it:
  ./configure CC=crashproof-cc CXX=crashproof-c++ && make
  cmake -DCMAKE_C_COMPILER=crashproof-cc -DCMAKE_CXX_COMPILER=crashproof-c++ -B build
  make CC='crashproof cc'
Then: crashproof check -- ./app
What a program was built of: crashproof-cc --crashproof-program ./app (or: --crashproof-program --totals ./app)

It differs from clang in this: debug information is always made (-g), frame pointers are kept, link-time optimisation
is left out, and code for other machines is not instrumented.

  --deps  also makes a version of the program that follows the dependences between its accesses to persistent memory, and
          puts it into the executable; crashproof record and infer use it

Environment:
  CRASHPROOF_CLANG   the clang 19 to use [default: clang-19 in PATH, then /usr/lib/llvm-19/bin/clang]
  CRASHPROOF_REPAIR  1: nothing is optimised or inlined, as `crashproof repair` needs it to know whole call stacks

clang-19 --help lists the options of clang.
";
