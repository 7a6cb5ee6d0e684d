//! The programs in `tests/types`: each line that stores says which type and field (`//~ struct node.next in struct outer.inner.next`,
//! innermost level first; `*`: at an index that is not a constant), alternatives separated by ` | `. All accesses on the line, as the front end made them, must be
//! among them, and so must every store that the optimiser left there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crashproof_compiler::frontend::FrontEnd;
use crashproof_library::destination;
use crashproof_sites::{Target, TypeInfo, layout};
use inkwell::context::Context;
use inkwell::module::Module;
use inkwell::values::{InstructionOpcode, InstructionValue};

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
    let mut found = Vec::new();
    for function in module.get_functions() {
        for block in function.get_basic_blocks() {
            for instruction in block.get_instructions() {
                found.extend(write(module, instruction));
            }
        }
    }
    found
}

fn write(module: &Module, instruction: InstructionValue) -> Option<Write> {
    use inkwell::values::AsValueRef;
    use llvm_sys::core::*;
    use llvm_sys::debuginfo::*;
    use llvm_sys::prelude::LLVMValueRef;
    use llvm_sys::target::*;
    let raw = instruction.as_value_ref();
    // SAFETY: the module is live and the kinds are checked.
    unsafe {
        let layout = LLVMGetModuleDataLayout(module.as_mut_ptr());
        let (address, size): (LLVMValueRef, Option<u64>) = match instruction.get_opcode() {
            InstructionOpcode::Store => {
                let size = LLVMStoreSizeOfType(layout, LLVMTypeOf(LLVMGetOperand(raw, 0)));
                (LLVMGetOperand(raw, 1), Some(size))
            }
            InstructionOpcode::AtomicRMW | InstructionOpcode::AtomicCmpXchg => (
                LLVMGetOperand(raw, 0),
                Some(LLVMStoreSizeOfType(layout, LLVMTypeOf(LLVMGetOperand(raw, 1)))),
            ),
            InstructionOpcode::Call => {
                let mut length = 0;
                let name = LLVMGetValueName2(LLVMGetCalledValue(raw), &mut length);
                let name = std::slice::from_raw_parts(name.cast::<u8>(), length);
                let name = std::str::from_utf8(name).ok()?;
                let known = ["llvm.memcpy", "llvm.memmove", "llvm.memset"]
                    .iter()
                    .any(|k| name.starts_with(k));
                let index = if known { 0 } else { destination(name)? };
                let bytes = LLVMGetOperand(raw, index + 2);
                let constant = !LLVMIsAConstantInt(bytes).is_null();
                (
                    LLVMGetOperand(raw, index),
                    constant.then(|| LLVMConstIntGetZExtValue(bytes)),
                )
            }
            _ => return None,
        };
        // As the instrumentation does it: constant steps up to a pointer that came from elsewhere.
        let mut base = address;
        let mut offset = Some(0);
        while !LLVMIsAGetElementPtrInst(base).is_null() {
            let constant = |operand| {
                let index = LLVMGetOperand(base, operand);
                (!LLVMIsAConstantInt(index).is_null()).then(|| LLVMConstIntGetSExtValue(index))
            };
            let ty = LLVMGetGEPSourceElementType(base);
            let is_field = matches!(LLVMGetTypeKind(ty), llvm_sys::LLVMTypeKind::LLVMStructTypeKind);
            let step = match LLVMGetNumOperands(base) {
                2 => constant(1).map(|index| index * LLVMABISizeOfType(layout, ty) as i64),
                3 if is_field => constant(2).map(|field| LLVMOffsetOfElement(layout, ty, field as u32) as i64),
                _ => None,
            };
            offset = offset.zip(step).map(|(offset, step)| offset + step);
            base = LLVMGetOperand(base, 0);
        }
        if !LLVMIsAAllocaInst(base).is_null() {
            return None;
        }
        offset = offset.filter(|_| LLVMIsAPHINode(base).is_null());
        let location = LLVMInstructionGetDebugLoc(raw);
        if location.is_null() {
            return None;
        }
        let mut scope = LLVMDILocationGetScope(location);
        let context = LLVMGetModuleContext(module.as_mut_ptr());
        let function = loop {
            let value = LLVMMetadataAsValue(context, scope);
            let mut operands = vec![std::ptr::null_mut(); LLVMGetMDNodeNumOperands(value) as usize];
            LLVMGetMDNodeOperands(value, operands.as_mut_ptr());
            if matches!(
                LLVMGetMetadataKind(scope),
                LLVMMetadataKind::LLVMDISubprogramMetadataKind
            ) {
                let string = |value: LLVMValueRef| {
                    let mut length = 0;
                    (!value.is_null()).then(|| {
                        let start = LLVMGetMDString(value, &mut length);
                        String::from_utf8_lossy(std::slice::from_raw_parts(start.cast(), length as usize)).into_owned()
                    })
                };
                break string(operands[3]).or_else(|| string(operands[2]))?;
            }
            scope = LLVMValueAsMetadata(operands[1]);
        };
        Some(Write {
            function,
            line: LLVMDILocationGetLine(location),
            column: LLVMDILocationGetColumn(location),
            size,
            offset,
        })
    }
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
        let front_module = Module::parse_bitcode_from_path(&front, &context).unwrap();
        let optimised_module = Module::parse_bitcode_from_path(&optimised, &context).unwrap();
        let expected = expectations(&source);
        for (module, is_front) in [(&front_module, true), (&optimised_module, false)] {
            let front = FrontEnd::read(&front_module);
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
    let module = Module::parse_bitcode_from_path(&front, &context).unwrap();
    let front = FrontEnd::read(&module);
    let optimised = Module::parse_bitcode_from_path(&optimised, &context).unwrap();
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
