//! What crashproof.toml declares to be helpers, in the commands that show traces. The corpus has check and crash
//! (`helper/declared.c`).

use crate::support;

use std::fs;
use std::path::Path;

use support::{compile, crashproof, run, text};

#[test]
fn dump_and_export_skip_declared_helpers() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus/helper");
    let source = corpus.join("declared.c").display().to_string();
    let folder = tempfile::tempdir().unwrap();
    compile("gcc", &["-g", "-O0", "-w", &source], &folder.path().join("app"));
    let in_folder = |arguments: &[&str]| text(&run(crashproof().current_dir(folder.path()).args(arguments), 0).stdout);
    in_folder(&["record", "-o", "trace", "--", "./app", "pool"]);
    let frames = |text: &str| -> Vec<String> {
        let frames = text.lines().filter(|line| line.contains("counted_add at "));
        frames.map(str::to_owned).collect()
    };
    let dump = ["dump", "--stacks", "--kind", "store", "trace"];
    let export = ["export", "--format", "perfetto", "trace"];

    let undeclared = frames(&in_folder(&dump));
    assert_eq!(undeclared.len(), 4, "{undeclared:?}");
    assert!(
        !undeclared.iter().any(|line| line.ends_with(" (helper)")),
        "{undeclared:?}"
    );
    let timeline = in_folder(&export);
    assert!(
        timeline.contains("declared.c:13") && !timeline.contains("declared.c:22"),
        "{timeline}"
    );

    // The file of the current folder is read, and one that is named.
    let declared = fs::read(corpus.join("declared.toml")).unwrap();
    fs::write(folder.path().join("other.toml"), &declared).unwrap();
    let named = in_folder(&[&dump[..], &["--config", "other.toml"]].concat());
    fs::write(folder.path().join("crashproof.toml"), &declared).unwrap();
    assert_eq!(in_folder(&dump), named);
    let declared = frames(&named);
    assert_eq!(declared.len(), 4, "{declared:?}");
    assert!(declared.iter().all(|line| line.ends_with(" (helper)")), "{declared:?}");
    let timeline = in_folder(&export);
    assert!(
        !timeline.contains("declared.c:13") && timeline.contains("declared.c:22"),
        "{timeline}"
    );
}
