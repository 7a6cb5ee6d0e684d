//! The runtime must run before every constructor of the program, must never be unloaded, and means its own functions where it calls
//! them: a program that has functions of the same names (a sanitizer's) comes before it in the loader's search.

fn main() {
    for flag in ["-z,initfirst", "-z,nodelete", "-z,now", "-Bsymbolic-functions"] {
        println!("cargo:rustc-cdylib-link-arg=-Wl,{flag}");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
