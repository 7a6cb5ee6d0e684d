//! The runtime must run before every constructor of the program, and must never be unloaded.

fn main() {
    for flag in ["initfirst", "nodelete", "now"] {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,{flag}");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
