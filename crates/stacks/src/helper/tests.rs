//! Functions of both kinds, compiled in every way. `crates/compiler/tests/whole/helpers.rs` judges the same ones by the
//! front end's code, and random ones by both.

use std::process::Command;

use super::ModuleCode;

const FUNCTIONS: &str = include_str!("tests/functions.c");
const INLINED: &str = include_str!("tests/inlined.c");

fn build(compiler: &str, level: &str, source: &str) -> (tempfile::TempDir, std::path::PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("code.c"), directory.path().join("code.so"));
    std::fs::write(&from, source).unwrap();
    let status = Command::new(compiler)
        .args([level, "-g", "-shared", "-fPIC", "-w", "-o"])
        .args([&to, &from])
        .status()
        .unwrap();
    assert!(status.success(), "{compiler} {level}");
    (directory, to)
}

#[test]
fn functions_of_both_kinds() {
    let mut wrong = Vec::new();
    for compiler in ["gcc", "clang-19"] {
        for level in ["-O0", "-O1", "-O2", "-O3"] {
            let (_directory, module) = build(compiler, level, FUNCTIONS);
            let code = ModuleCode::read(&module, Some(&module)).unwrap();
            for (name, is_helper) in code.functions() {
                let expected = match name.split_once('_') {
                    Some(("yes", _)) => true,
                    Some(("no", _)) => false,
                    _ => continue,
                };
                if is_helper != expected {
                    wrong.push(format!("{compiler} {level} {name}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn inlined_functions_of_both_kinds() {
    let mut wrong = Vec::new();
    let mut undecided = Vec::new();
    for compiler in ["gcc", "clang-19"] {
        for level in ["-O0", "-O1", "-O2", "-O3"] {
            let (_directory, module) = build(compiler, level, INLINED);
            let code = ModuleCode::read(&module, Some(&module)).unwrap();
            for (range, name) in code.symbols.all() {
                let expected = match name {
                    _ if name.starts_with("in_yes_") => true,
                    _ if name.starts_with("in_no_") => false,
                    _ => continue,
                };
                let followed = code.followed(range.start).unwrap();
                let mut inlined = 0;
                for effect in &followed.summary.effects {
                    let at = followed.instructions[effect.index].ip();
                    let instances = code.inlined_at(at);
                    if instances.is_empty() {
                        continue;
                    }
                    inlined += 1;
                    let found = code.helpers(at, instances.len() + 1)[0];
                    if found && !expected {
                        wrong.push(format!("{compiler} {level} {name} at {at:#x}"));
                    }
                    if expected && !found {
                        undecided.push(format!("{compiler} {level} {name} at {at:#x}"));
                    }
                }
                if inlined == 0 {
                    wrong.push(format!("{compiler} {level} {name}: nothing was inlined"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(undecided.is_empty(), "{undecided:#?}");
}
