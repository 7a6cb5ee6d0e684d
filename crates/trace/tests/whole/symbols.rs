//! Symbolisation of small programs, built here with gcc in the ways that users build theirs.

use std::path::{Path, PathBuf};
use std::process::Command;

use crashproof_trace::Module;
use crashproof_trace::symbols::{SourceFrame, Symbolizer};
use object::{Object, ObjectSection, ObjectSymbol};
use tempfile::TempDir;

const SOURCE: &str = r#"
static inline __attribute__((always_inline)) void persist_field(long *field, long value)
{
    *(volatile long *)field = value; /* line 4 */
}

static __attribute__((noinline)) int local_function(long *pool)
{
    persist_field(pool + 1, 42); /* line 9 */
    return 0;
}

int exported_function(long *pool)
{
    return local_function(pool) + 1; /* line 15 */
}

int main(void)
{
    long pool[4];
    return exported_function(pool) - 1; /* line 21 */
}
"#;

struct Program {
    directory: TempDir,
    path: PathBuf,
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

impl Program {
    fn build(compiler: &str, source_name: &str, source: &str, flags: &[&str]) -> Program {
        let directory = TempDir::new().unwrap();
        let source_path = directory.path().join(source_name);
        std::fs::write(&source_path, source).unwrap();
        let path = directory.path().join("app");
        run(Command::new(compiler)
            .arg("-Wl,--build-id")
            .args(flags)
            .arg("-o")
            .arg(&path)
            .arg(source_name)
            .current_dir(directory.path()));
        Program { directory, path }
    }

    fn c(flags: &[&str]) -> Program {
        Program::build("gcc", "app.c", SOURCE, flags)
    }

    fn objcopy(&self, arguments: &[&str]) {
        run(Command::new("objcopy")
            .args(arguments)
            .current_dir(self.directory.path()));
    }

    fn module(&self) -> Module {
        module(&self.path)
    }

    fn address_of(&self, function: &str) -> u64 {
        self.address_in(function, &[])
    }

    /// The address of the first instruction with these bytes in a function.
    fn address_in(&self, function: &str, code: &[u8]) -> u64 {
        let bytes = std::fs::read(&self.path).unwrap();
        let object = object::File::parse(&*bytes).unwrap();
        let symbol = object.symbols().find(|symbol| symbol.name() == Ok(function)).unwrap();
        let start = symbol.address();
        let section = object.section_by_index(symbol.section_index().unwrap()).unwrap();
        let text = section.data_range(start, symbol.size()).unwrap().unwrap();
        start + (0..text.len()).position(|at| text[at..].starts_with(code)).unwrap() as u64
    }

    /// The store in the inlined function: `movq $42, 8(%rdi)`.
    fn store(&self) -> u64 {
        self.address_in("local_function", &[0x48, 0xc7, 0x47, 0x08, 42])
    }
}

fn module(path: &Path) -> Module {
    let bytes = std::fs::read(path).unwrap();
    let build_id = object::File::parse(&*bytes)
        .unwrap()
        .build_id()
        .unwrap()
        .unwrap_or_default()
        .to_vec();
    Module {
        path: path.to_str().unwrap().into(),
        build_id,
        locked_sites: 0,
        place: None,
    }
}

fn positions(frames: &[SourceFrame]) -> Vec<(&str, u32, bool)> {
    frames
        .iter()
        .map(|frame| {
            (
                frame.function.as_deref().unwrap_or("?"),
                frame.line.unwrap_or(0),
                frame.inlined,
            )
        })
        .collect()
}

fn check_inlined(program: &Program, symbolizer: &mut Symbolizer, store: u64) {
    let frames = symbolizer.frames(&program.module(), store, false);
    assert_eq!(
        positions(&frames),
        [("persist_field", 4, true), ("local_function", 9, false)]
    );
    let file = program.directory.path().join("app.c");
    assert_eq!(frames[0].file.as_deref(), file.to_str());
    assert!(frames[0].column.is_some() && !frames[0].approximate);
    assert_eq!(symbolizer.warnings(), [""; 0]);
}

#[test]
fn inlined_frames() {
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let program = Program::c(&["-O2", "-g", version]);
        check_inlined(&program, &mut Symbolizer::default(), program.store());
    }
}

#[test]
fn return_addresses_belong_to_the_call() {
    let program = Program::c(&["-O0", "-g"]);
    // `call` is followed by other code of another line; its return address is 5 bytes on.
    let call = program.address_in("main", &[0xe8]);
    let frames = Symbolizer::default().frames(&program.module(), call + 5, true);
    assert_eq!(positions(&frames), [("main", 21, false)]);
}

#[test]
fn separate_debug_files() {
    let program = Program::c(&["-O2", "-g"]);
    let (store, directory) = (program.store(), program.directory.path());
    program.objcopy(&["--only-keep-debug", "app", "app.debug"]);
    program.objcopy(&["--strip-all", "--add-gnu-debuglink=app.debug", "app"]);
    check_inlined(&program, &mut Symbolizer::default(), store);

    std::fs::create_dir(directory.join(".debug")).unwrap();
    std::fs::rename(directory.join("app.debug"), directory.join(".debug/app.debug")).unwrap();
    check_inlined(&program, &mut Symbolizer::default(), store);

    let root = TempDir::new().unwrap();
    let mirrored = root
        .path()
        .join(directory.canonicalize().unwrap().strip_prefix("/").unwrap());
    std::fs::create_dir_all(&mirrored).unwrap();
    std::fs::rename(directory.join(".debug/app.debug"), mirrored.join("app.debug")).unwrap();
    check_inlined(&program, &mut Symbolizer::new(vec![root.path().into()]), store);

    let build_id: String = program
        .module()
        .build_id
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let by_id = root.path().join(".build-id").join(&build_id[..2]);
    std::fs::create_dir_all(&by_id).unwrap();
    std::fs::rename(
        mirrored.join("app.debug"),
        by_id.join(format!("{}.debug", &build_id[2..])),
    )
    .unwrap();
    check_inlined(&program, &mut Symbolizer::new(vec![root.path().into()]), store);

    // Gone: there is no symbol table either.
    let frames = Symbolizer::default().frames(&program.module(), store, false);
    assert_eq!(frames, [SourceFrame::default()]);
}

#[test]
fn a_debug_file_of_another_build_is_not_used() {
    let program = Program::c(&["-O2", "-g", "-Wl,--build-id=none"]);
    let store = program.store();
    program.objcopy(&["--only-keep-debug", "app", "app.debug"]);
    program.objcopy(&["--strip-all", "--add-gnu-debuglink=app.debug", "app"]);
    assert_eq!(program.module().build_id, []);
    check_inlined(&program, &mut Symbolizer::default(), store);
    // Without build ids the checksum tells.
    let other = Program::c(&["-O1", "-g", "-Wl,--build-id=none"]);
    std::fs::copy(&other.path, program.directory.path().join("app.debug")).unwrap();
    let frames = Symbolizer::default().frames(&program.module(), store, false);
    assert_eq!(frames, [SourceFrame::default()]);
}

#[test]
fn without_debug_info_the_function_is_known() {
    let program = Program::c(&["-O2", "-rdynamic"]);
    let store = program.store();
    let exported = program.address_of("exported_function");
    let mut symbolizer = Symbolizer::default();
    assert_eq!(
        positions(&symbolizer.frames(&program.module(), store, false)),
        [("local_function", 0, false)]
    );

    // Only `.dynsym` is left, which has no local function: no neighbour may take its place.
    program.objcopy(&["--strip-all", "app"]);
    let mut symbolizer = Symbolizer::default();
    assert_eq!(
        positions(&symbolizer.frames(&program.module(), exported, false)),
        [("exported_function", 0, false)]
    );
    assert_eq!(
        positions(&symbolizer.frames(&program.module(), store, false)),
        [("?", 0, false)]
    );
    assert_eq!(symbolizer.warnings(), [""; 0]);
}

#[test]
fn cpp_names_are_demangled() {
    let source = "namespace pool { struct Tree { int insert(long *p); };\n\
                  __attribute__((noinline)) int Tree::insert(long *p) { p[1] = 42; return 0; } }\n\
                  int main() { long p[2]; return pool::Tree().insert(p); }\n";
    for flags in [&["-O2", "-g"][..], &["-O2"]] {
        let program = Program::build("g++", "app.cc", source, flags);
        let address = program.address_of("_ZN4pool4Tree6insertEPl");
        let frames = Symbolizer::default().frames(&program.module(), address, false);
        assert_eq!(frames[0].function.as_deref(), Some("pool::Tree::insert(long*)"));
    }
}

#[test]
fn a_changed_or_missing_module_is_noted_once() {
    let program = Program::c(&["-O2", "-g"]);
    let store = program.store();
    let mut module = program.module();
    module.build_id[0] ^= 1;
    let mut symbolizer = Symbolizer::default();
    for _ in 0..2 {
        assert_eq!(symbolizer.frames(&module, store, false), [SourceFrame::default()]);
    }
    assert_eq!(symbolizer.warnings().len(), 1);
    assert!(symbolizer.warnings()[0].contains("has changed since it was recorded"));

    for path in ["/nowhere/app", "/dev/null", "/", file!()] {
        let module = Module {
            path: path.into(),
            build_id: vec![],
            locked_sites: 0,
            place: None,
        };
        let mut symbolizer = Symbolizer::default();
        assert_eq!(symbolizer.frames(&module, store, false), [SourceFrame::default()]);
        assert_eq!(symbolizer.warnings().len(), 1, "{path}");
    }
    let vdso = Module {
        path: "[vdso]".into(),
        build_id: vec![],
        locked_sites: 0,
        place: None,
    };
    symbolizer.frames(&vdso, store, false);
    assert_eq!(symbolizer.warnings().len(), 1);
}

#[test]
fn a_damaged_module_does_no_harm() {
    let program = Program::c(&["-O2", "-g"]);
    let store = program.store();
    let whole = std::fs::read(&program.path).unwrap();
    let mut random = 7u64;
    for _ in 0..300 {
        let mut bytes = whole.clone();
        for _ in 0..20 {
            random = random
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let at = (random >> 33) as usize % bytes.len();
            bytes[at] = (random >> 20) as u8;
        }
        if random.is_multiple_of(3) {
            bytes.truncate((random >> 33) as usize % whole.len());
        }
        std::fs::write(&program.path, bytes).unwrap();
        let module = Module {
            path: program.path.to_str().unwrap().into(),
            build_id: vec![],
            locked_sites: 0,
            place: None,
        };
        assert!(!Symbolizer::default().frames(&module, store, false).is_empty());
    }
}

/// LLVM merges the two stores into one without a line. It is given the line before it, and is marked.
#[test]
fn merged_stores_are_approximate() {
    let source = r#"
#[inline(never)]
pub fn observe(value: u64) {
    std::hint::black_box(value);
}

#[inline(never)]
pub fn merged(flag: bool, pool: &mut [u64; 4]) {
    if flag { // line 9
        observe(1);
        pool[1] = 42;
    } else {
        observe(2);
        pool[1] = 42;
    }
}

fn main() {
    let mut pool = [0; 4];
    merged(std::env::args().count() > 1, &mut pool);
    std::hint::black_box(pool);
}
"#;
    let directory = TempDir::new().unwrap();
    std::fs::write(directory.path().join("app.rs"), source).unwrap();
    let mut rustc = Command::new("rustc");
    run(rustc
        .args(["-O", "-g", "-C", "symbol-mangling-version=v0", "app.rs"])
        .current_dir(directory.path()));
    let path = directory.path().join("app");
    let program = Program { directory, path };
    let bytes = std::fs::read(&program.path).unwrap();
    let object = object::File::parse(&*bytes).unwrap();
    let name = object
        .symbols()
        .filter_map(|symbol| symbol.name().ok())
        .find(|name| name.contains("6merged"))
        .unwrap();
    // The end of `movq $42, 8(%register)`.
    let store = program.address_in(name, &[8, 42, 0, 0, 0]);
    let frames = Symbolizer::default().frames(&program.module(), store, false);
    assert_eq!(positions(&frames), [("app::merged", 9, false)]);
    assert!(frames[0].approximate);
}

/// gcc credits the merged store to the first of the two lines. Only that store is marked.
#[test]
fn stores_that_gcc_merged_are_approximate() {
    let source = "struct pair { unsigned a, b; unsigned long c; };\n\
                  __attribute__((noinline)) void both(struct pair *p) {\n\
                  p->a = 1;\n\
                  p->b = 2;\n\
                  }\n\
                  __attribute__((noinline)) void one(struct pair *p, unsigned long v) {\n\
                  const unsigned long k = 42;\n\
                  p->c = v + k;\n\
                  }\n\
                  int main(int n, char **v) { struct pair p; both(&p); one(&p, n); return p.a + p.b + p.c == 0; }\n";
    let program = Program::build("gcc", "app.c", source, &["-O2", "-g"]);
    // `mov %rax, (%rdi)`, and the same to 8(%rdi).
    for (function, bytes, line, approximate) in [
        ("both", &[0x48, 0x89, 0x07][..], 3, true),
        ("one", &[0x48, 0x89, 0x77, 0x08], 8, false),
    ] {
        let store = program.address_in(function, bytes);
        let frames = Symbolizer::default().frames(&program.module(), store, false);
        assert_eq!(
            (frames[0].line, frames[0].approximate),
            (Some(line), approximate),
            "{function}"
        );
    }
}

/// dwz moves what two debug files share into a third.
#[test]
fn supplementary_debug_files() {
    let dwz = Command::new("dwz").arg("--version").output();
    assert!(
        dwz.is_ok(),
        "dwz is not installed: see tools/deps.sh, or leave this test out with --skip"
    );
    let program = Program::c(&["-O2", "-g"]);
    let (store, directory) = (program.store(), program.directory.path());
    std::fs::copy(&program.path, directory.join("twin")).unwrap();
    run(Command::new("dwz")
        .args(["-m", "shared.debug", "-M", "shared.debug", "app", "twin"])
        .current_dir(directory));
    let bytes = std::fs::read(&program.path).unwrap();
    assert!(
        object::File::parse(&*bytes)
            .unwrap()
            .gnu_debugaltlink()
            .unwrap()
            .is_some()
    );
    check_inlined(&program, &mut Symbolizer::default(), store);

    std::fs::remove_file(directory.join("shared.debug")).unwrap();
    let mut symbolizer = Symbolizer::default();
    let frames = symbolizer.frames(&program.module(), store, false);
    assert_eq!(frames[0].line, Some(4));
    assert!(
        symbolizer.warnings()[0].contains("shared.debug, which is not there"),
        "{:?}",
        symbolizer.warnings()
    );
}
