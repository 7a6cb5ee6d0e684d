//! The example structures of Debian's libpmemobj-dev, built with a driver of ours.

use std::path::Path;

use super::{compile, source};

pub(crate) const EXAMPLES: &str = "/usr/share/doc/libpmemobj-dev/examples";

pub(crate) fn build(driver: &str, sources: &[String], output: &Path) {
    let (here, main) = (source("pmdk"), source(&format!("pmdk/{driver}.c")));
    let includes: Vec<_> = ["", "/map", "/tree_map", "/hashmap", "/list_map"]
        .iter()
        .map(|folder| format!("-I{EXAMPLES}{folder}"))
        .collect();
    let include_here = format!("-I{here}");
    let mut arguments = vec!["-g", "-O2", "-w", &include_here];
    arguments.extend(includes.iter().map(String::as_str));
    arguments.push(&main);
    arguments.extend(sources.iter().map(String::as_str));
    arguments.push("-lpmemobj");
    compile("gcc", &arguments, output);
}

pub(crate) fn sources_in(folder: &str, prefix: &str) -> Vec<String> {
    let entries =
        std::fs::read_dir(format!("{EXAMPLES}/{folder}")).expect("libpmemobj-dev is not installed: see tools/deps.sh");
    let names = entries.map(|e| e.unwrap().path().display().to_string());
    names
        .filter(|n| n.ends_with(".c") && n.rsplit('/').next().unwrap().starts_with(prefix))
        .collect()
}
