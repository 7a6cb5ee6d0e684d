//! The programs in `tests/types`: each line that stores says which type and field (`//~ struct node.next in struct outer.inner.next`,
//! innermost level first; `*`: at an index that is not a constant), alternatives separated by ` | `. All accesses on the line, as the front end made them, must be
//! among them, and so must every store that the optimiser left there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crashproof_compiler::frontend::FrontEnd;
use crashproof_library::destination;
use crashproof_llvm::{Context, Module, NodeKind, Opcode, Value};
use crashproof_sites::{Target, TypeInfo, layout};

fn compile(source: &Path, arguments: &[&str], to: &Path) {
    let clang = if source.extension().is_some_and(|e| e == "c") {
        "clang-19"
    } else {
        "clang++-19"
    };
    let status = Command::new(clang)
        .args(arguments)
        .args(["-emit-llvm", "-c", "-o"])
        .arg(to)
        .arg(source)
        .status();
    assert!(status.expect("clang-19 is installed").success(), "{}", source.display());
}

/// A place in the code that writes memory.
struct Write {
    function: String,
    line: u32,
    column: u32,
    size: Option<u64>,
    offset: Option<i64>,
}

fn writes(module: &Module) -> Vec<Write> {
    let instructions = module.functions().flat_map(Value::instructions);
    instructions
        .filter_map(|instruction| write(module, instruction))
        .collect()
}

fn write(module: &Module, instruction: Value) -> Option<Write> {
    let store_size = |value: Value| Some(module.layout().store_size_of(value.ty()));
    let (address, size) = match instruction.opcode()? {
        Opcode::LLVMStore => (instruction.operand(1)?, store_size(instruction.operand(0)?)),
        Opcode::LLVMAtomicRMW | Opcode::LLVMAtomicCmpXchg => {
            (instruction.operand(0)?, store_size(instruction.operand(1)?))
        }
        Opcode::LLVMCall => {
            let name = instruction.called_value()?.name();
            let known = ["llvm.memcpy", "llvm.memmove", "llvm.memset"]
                .iter()
                .any(|k| name.starts_with(k));
            let index = if known { 0 } else { destination(name)? };
            (instruction.operand(index)?, instruction.operand(index + 2)?.unsigned())
        }
        _ => return None,
    };
    // As the instrumentation does it: constant steps up to a pointer that came from elsewhere.
    let (base, offset) = address.base_and_offset(Value::is_instruction);
    if base.is_alloca() {
        return None;
    }
    let location = instruction.debug_location()?;
    let mut scope = location.scope();
    while !matches!(scope.kind(), NodeKind::LLVMDISubprogramMetadataKind) {
        scope = scope.operand(1)?;
    }
    let name = [3, 2]
        .map(|operand| scope.string(operand))
        .into_iter()
        .find(|name| !name.is_empty());
    Some(Write {
        function: name?.to_owned(),
        line: location.line(),
        column: location.column(),
        size,
        offset: offset.filter(|_| base.opcode() != Some(Opcode::LLVMPHI)),
    })
}

fn render(types: &[TypeInfo], target: &Target) -> String {
    match target {
        Target::Unknown => "unknown".into(),
        Target::NoStruct => "no struct".into(),
        Target::Argument(argument) => match argument.offset {
            Some(offset) => format!("argument {} + {offset}", argument.index),
            None => format!("argument {}", argument.index),
        },
        Target::Place(place) => {
            let levels = place.levels.iter().map(|level| {
                let name = &types[level.ty as usize].name;
                let varying = if level.array.is_some() { "*" } else { "" };
                let size = level.array.or(place.size).unwrap_or(1);
                let field = layout::field_name(types, level.ty, level.offset, size);
                format!("{name}.{field}{varying}")
            });
            levels.collect::<Vec<_>>().join(" in ")
        }
    }
}

fn expectations(source: &Path) -> BTreeMap<u32, Vec<String>> {
    let text = std::fs::read_to_string(source).unwrap();
    let mut expected = BTreeMap::new();
    for (index, line) in text.lines().enumerate() {
        if let Some((_, wanted)) = line.split_once("//~ ") {
            expected.insert(
                index as u32 + 1,
                wanted.split(" | ").map(|s| s.trim().to_owned()).collect(),
            );
        }
    }
    expected
}

fn sources() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/types");
    let mut sources: Vec<PathBuf> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    sources.sort();
    sources
}

fn check(level: &str) {
    let scratch = tempfile::tempdir().unwrap();
    let mut wrong = Vec::new();
    for source in sources() {
        let front = scratch.path().join("front.bc");
        let optimised = scratch.path().join("optimised.bc");
        compile(
            &source,
            &["-g", "-fstandalone-debug", level, "-Xclang", "-disable-llvm-passes"],
            &front,
        );
        compile(&source, &["-g", "-fstandalone-debug", level], &optimised);
        let context = Context::create();
        let mut front_module = context.read_bitcode(&front).unwrap();
        let optimised_module = context.read_bitcode(&optimised).unwrap();
        let expected = expectations(&source);
        for is_front in [true, false] {
            let front = FrontEnd::read(&mut front_module);
            let module = if is_front { &front_module } else { &optimised_module };
            let mut found: BTreeMap<u32, Vec<Target>> = BTreeMap::new();
            for write in writes(module) {
                let target = front.target(&write.function, write.line, write.column, write.size, write.offset);
                found.entry(write.line).or_default().push(target);
            }
            let (types, _) = front.finish();
            for (line, wanted) in &expected {
                let targets = found.get(line).map_or(&[][..], Vec::as_slice);
                let rendered: Vec<String> = targets.iter().map(|target| render(&types, target)).collect();
                // Pieces of a copy are named by what they are.
                let is_wanted = |r: &String| wanted.iter().any(|w| w == r);
                if (is_front && rendered.is_empty()) || !rendered.iter().all(is_wanted) {
                    let stage = if is_front { "front end" } else { "optimised" };
                    let file = source.file_name().unwrap().to_string_lossy();
                    wrong.push(format!(
                        "{file}:{line} {level} {stage}: expected {wanted:?}, found {rendered:?}"
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// A store that the optimiser merged from several lines is credited to one of them; the others are known.
#[test]
fn merged_stores() {
    let scratch = tempfile::tempdir().unwrap();
    let source = scratch.path().join("merged.c");
    let text = "struct vec { double x, y; long a; int b, c; };\n\
                void set(struct vec *v, double d) {\n\
                v->x *= d;\n\
                v->y *= d;\n\
                v->a = 7;\n\
                }\n\
                void clear(struct vec *v) {\n\
                v->x = 0;\n\
                v->y = 0;\n\
                v->a = 0;\n\
                v->b = 0;\n\
                v->c = 0;\n\
                }\n\
                struct table { long used; struct vec vecs[9]; };\n\
                void reset(struct table *t, long i) {\n\
                struct vec *v = &t->vecs[i];\n\
                v->c = 0;\n\
                v->b = 0;\n\
                v->a = 0;\n\
                }\n";
    std::fs::write(&source, text).unwrap();
    let [front, optimised] = ["front.bc", "optimised.bc"].map(|name| scratch.path().join(name));
    compile(&source, &["-g", "-O2", "-Xclang", "-disable-llvm-passes"], &front);
    compile(&source, &["-g", "-O2"], &optimised);
    let context = Context::create();
    let front = FrontEnd::read(&mut context.read_bitcode(&front).unwrap());
    let optimised = context.read_bitcode(&optimised).unwrap();
    let mut found = Vec::new();
    for write in writes(&optimised) {
        let merged = front.merged(&write.function, write.line, write.column, write.size);
        let target = front.target(&write.function, write.line, write.column, write.size, write.offset);
        let mut lines: Vec<u32> = merged.iter().map(|location| location.line).collect();
        lines.push(write.line);
        lines.sort_unstable();
        let Target::Place(place) = target else {
            panic!("{target:?}")
        };
        found.push((lines, place.levels[0].offset, place.size));
    }
    let expected = [
        (vec![3, 4], 0, Some(16)),
        (vec![5], 16, Some(8)),
        (vec![8, 9, 10, 11, 12], 0, Some(32)),
        // Of an element at an index that is not known.
        (vec![17, 18, 19], 16, Some(16)),
    ];
    assert_eq!(found, expected);
}

#[test]
fn unoptimised() {
    check("-O0");
}

#[test]
fn optimised() {
    check("-O2");
}
