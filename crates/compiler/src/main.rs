//! `crashproof cc` and `crashproof c++`: see `crashproof_compiler::driver`.

fn main() {
    std::process::exit(crashproof_compiler::driver::main(std::env::args_os()))
}
