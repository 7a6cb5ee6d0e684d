//! Makes a plan from annotations: ` //~ flush`, `flush+fence`, `fence`, `subprogram F`, `subprogram+fence F`, `remove` at the end of a line.
//! `@name` behind a flush makes one edit of all with that name.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use crate::ir::Code;
use crate::observed::Observed;
use crate::plan::{Edit, Fix, PersistentFunction, Place, Plan, SafeBy, known};
use crate::source::{Cause, Changed, CompileCommand, Origin, Patch, diff, patch_sources};
use crashproof_llvm::{Context, Module, Value};

/// The changed files, and what was refused, for a snapshot.
pub(super) fn repaired(files: &[(&str, &str)]) -> String {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let tree = folder.path().canonicalize().expect("a path");
    let (patch, plan) = patched(&tree, files);
    check_applies(&tree, &patch);
    check_causes(&patch, &plan);
    let mut text = String::new();
    for changed in &patch.files {
        let is_header = changed.path.ends_with("crashproof_pm.h");
        let shown = if is_header { "(the header)\n" } else { &changed.new };
        writeln!(text, "--- {}\n{}", changed.path.display(), shown.trim_end()).expect("text");
    }
    for (fix, reason) in &patch.impossible {
        let reason = reason.to_string().replace(&format!("{}/", tree.display()), "");
        writeln!(text, "--- not {:?}: {reason}", name(&plan.fixes[*fix].edit)).expect("text");
    }
    text
}

/// Of one C file.
pub(super) fn repaired_c(text: &str) -> String {
    repaired(&[("a.c", text)])
}

pub(super) fn repaired_cxx(text: &str) -> String {
    repaired(&[("a.cpp", text)])
}

fn name(edit: &Edit) -> &'static str {
    match edit {
        Edit::Flush { .. } => "flush",
        Edit::Fence { .. } => "fence",
        Edit::Subprogram { .. } => "subprogram",
        Edit::RemoveFlush { .. } | Edit::RemoveFence { .. } => "remove",
    }
}

fn patched(tree: &Path, files: &[(&str, &str)]) -> (Patch, Plan) {
    let mut annotations = Vec::new();
    for (name, text) in files {
        let mut plain = String::new();
        for (index, line) in text.lines().enumerate() {
            let (code, annotation) = line.split_once(" //~ ").map_or((line, ""), |(code, rest)| (code, rest));
            plain.push_str(code);
            plain.push('\n');
            for annotation in annotation.split(';').filter(|annotation| !annotation.is_empty()) {
                annotations.push((tree.join(name), index as u32 + 1, annotation.trim().to_owned()));
            }
        }
        let path = tree.join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, plain).expect("a file");
    }
    let context = Context::create();
    let mut module = context.create_module("program");
    let mut commands = Vec::new();
    for (name, _) in files.iter().filter(|(name, _)| !name.ends_with(".h")) {
        let compiler = if name.ends_with(".c") { "clang-19" } else { "clang++-19" };
        let mut command: Vec<String> = vec![
            "crashproof-cc".into(),
            "-g".into(),
            "-O0".into(),
            "-mclwb".into(),
            "-c".into(),
            (*name).into(),
        ];
        if compiler.ends_with("++-19") {
            command[0] = "crashproof-c++".into();
        }
        let bitcode = tree.join(format!("{name}.bc"));
        run(Command::new(clang(compiler))
            .args(&command[1..])
            .args(["-Xclang", "-disable-O0-optnone", "-emit-llvm", "-o"])
            .arg(&bitcode)
            .current_dir(tree));
        module
            .link_in(context.read_bitcode(&bitcode).expect("a module"))
            .expect("linked");
        std::fs::remove_file(bitcode).expect("removed");
        commands.push(CompileCommand {
            source: (*name).into(),
            directory: tree.into(),
            command,
        });
    }
    let plan = Planner { module: &module }.plan(&annotations);
    let patch = patch_sources(&plan, &module, commands.clone(), &Observed::default(), tree).expect("a patch");
    (patch, plan)
}

/// clang++-19 is not there everywhere; clang-19 is what the driver needs.
fn clang(name: &str) -> String {
    let path = format!("/usr/bin/{name}");
    match Path::new(&path).exists() {
        true => path,
        false => "clang-19".into(),
    }
}

fn run(command: &mut Command) {
    let output = command.output().expect("a process");
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// With git, and the result compiles without a warning.
/// Each changed line says which fixes it is made for, and each fix has its lines.
fn check_causes(patch: &Patch, plan: &Plan) {
    for changed in &patch.files {
        let old: Vec<&str> = changed.old.as_deref().unwrap_or_default().lines().collect();
        for (line, text) in (1..).zip(changed.new.lines()) {
            match changed.origin(line) {
                Origin::Kept(kept) => assert_eq!(old[kept as usize - 1], text),
                Origin::Added(causes) => assert!(!causes.is_empty(), "{text}"),
            }
        }
    }
    let is_refused = |fix: usize| patch.impossible.iter().any(|(refused, _)| *refused == fix);
    for fix in (0..plan.fixes.len()).filter(|fix| !is_refused(*fix)) {
        let lines = |changed: &Changed| changed.of(Cause::Fix(fix)).count();
        assert!(
            patch.files.iter().map(lines).sum::<usize>() > 0,
            "{:?}",
            plan.fixes[fix]
        );
    }
}

fn check_applies(tree: &Path, patch: &Patch) {
    if patch.files.is_empty() {
        return;
    }
    run(Command::new("git").args(["init", "-q"]).current_dir(tree));
    std::fs::write(tree.join("x.diff"), diff(&patch.files)).expect("a file");
    run(Command::new("git")
        .args(["apply", "--whitespace=error-all", "x.diff"])
        .current_dir(tree));
    for changed in &patch.files {
        let text = std::fs::read_to_string(tree.join(&changed.path)).expect("the changed file");
        assert_eq!(text, changed.new);
        let name = changed.path.to_string_lossy();
        if !name.ends_with(".h") {
            run(Command::new(clang("clang-19"))
                .args([
                    "-fsyntax-only",
                    "-Werror",
                    "-Wall",
                    "-Wno-unused",
                    "-Wno-unsequenced",
                    "-mclwb",
                    &name,
                ])
                .current_dir(tree));
        }
    }
}

struct Planner<'m, 'c> {
    module: &'m Module<'c>,
}

impl Planner<'_, '_> {
    fn plan(&self, annotations: &[(std::path::PathBuf, u32, String)]) -> Plan {
        let mut plan = Plan::default();
        let mut groups: BTreeMap<String, usize> = BTreeMap::new();
        let places = self.places();
        for (file, line, annotation) in annotations {
            let here = |wanted: &dyn Fn(&Value) -> bool| -> Vec<Place> {
                let is_here = |place: &Place| {
                    place
                        .position
                        .as_ref()
                        .is_some_and(|at| at.file == *file && at.line == *line)
                };
                let found = places
                    .iter()
                    .filter(|(place, instruction)| is_here(place) && wanted(instruction));
                found.map(|(place, _)| place.clone()).collect()
            };
            let (annotation, group) = annotation
                .split_once(" @")
                .map_or((annotation.as_str(), None), |(word, group)| (word, Some(group)));
            let (word, argument) = annotation.split_once(' ').unwrap_or((annotation, ""));
            let fence = word.ends_with("+fence");
            let calls = |instruction: &Value| instruction.is_call();
            match word {
                "flush" | "flush+fence" => {
                    let mut stores = here(&|instruction| is_store(instruction));
                    assert!(!stores.is_empty(), "no store at line {line}");
                    match group.and_then(|group| groups.get(group)) {
                        Some(index) => {
                            if let Edit::Flush {
                                stores: all,
                                fence: fenced,
                            } = &mut plan.fixes[*index].edit
                            {
                                all.append(&mut stores);
                                *fenced |= fence;
                            }
                            continue;
                        }
                        None => {
                            if let Some(group) = group {
                                groups.insert(group.into(), plan.fixes.len());
                                plan.fixes.push(fix(Edit::Flush { stores, fence }));
                            } else {
                                plan.fixes.extend(stores.into_iter().map(|store| {
                                    fix(Edit::Flush {
                                        stores: vec![store],
                                        fence,
                                    })
                                }));
                            }
                        }
                    }
                }
                "fence" => plan.fixes.push(fix(Edit::Fence {
                    after: here(&calls)[0].clone(),
                })),
                "remove" => plan.fixes.push(fix(Edit::RemoveFlush {
                    flush: here(&calls)[0].clone(),
                })),
                "subprogram" | "subprogram+fence" => {
                    let named = |instruction: &Value| {
                        calls(instruction) && callee(instruction).is_none_or(|callee| callee == argument)
                    };
                    let call = here(&named).first().expect("the call").clone();
                    let clone = self.clone_of(argument, &places, &mut plan);
                    plan.fixes.push(fix(Edit::Subprogram { call, clone, fence }));
                }
                _ => panic!("{annotation}"),
            }
        }
        plan
    }

    /// A copy that flushes every store that is not to a variable of its own.
    fn clone_of(&self, original: &str, places: &[(Place, Value)], plan: &mut Plan) -> String {
        let name = format!("{original}_persist");
        if plan.clones.iter().any(|clone| clone.name == name) {
            return name;
        }
        let index = plan.clones.len();
        plan.clones.push(PersistentFunction {
            original: original.into(),
            name: name.clone(),
            ..PersistentFunction::default()
        });
        let mut flushes = Vec::new();
        let mut calls = Vec::new();
        for (place, instruction) in places.iter().filter(|(place, _)| place.function == original) {
            if is_store(instruction) {
                flushes.push(vec![place.clone()]);
            } else if let Some(callee) = callee(instruction)
                && self.stores(&callee, places, &mut Vec::new())
            {
                calls.push((place.clone(), self.clone_of(&callee, places, plan)));
            }
        }
        plan.clones[index].flushes = flushes;
        plan.clones[index].calls = calls;
        name
    }

    fn stores(&self, function: &str, places: &[(Place, Value)], seen: &mut Vec<String>) -> bool {
        if seen.iter().any(|name| name == function) {
            return false;
        }
        seen.push(function.into());
        let mut own = places.iter().filter(|(place, _)| place.function == function);
        own.any(|(_, instruction)| {
            is_store(instruction) || callee(instruction).is_some_and(|callee| self.stores(&callee, places, seen))
        })
    }

    /// All instructions, with their places.
    fn places(&self) -> Vec<(Place, Value<'_>)> {
        let instructions = self.module.functions().flat_map(Value::code);
        instructions
            .filter_map(|instruction| Some((instruction.place()?, instruction)))
            .collect()
    }
}

fn fix(edit: Edit) -> Fix {
    Fix {
        findings: Vec::new(),
        edit,
        safe_by: SafeBy::FlushInsertion,
        candidates: Vec::new(),
    }
}

fn callee(instruction: &Value) -> Option<String> {
    instruction.called_function().map(|function| function.name().to_owned())
}

fn is_store(instruction: &Value) -> bool {
    let written = callee(instruction).and_then(|callee| known::written(&callee));
    let pointer = match written {
        Some(written) => instruction.arguments().get(written.destination as usize).copied(),
        None => instruction.store_pointer(),
    };
    pointer.is_some_and(|pointer| !pointer.base().is_alloca())
}
