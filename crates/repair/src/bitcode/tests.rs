//! Plans on snippets, applied and run.

use std::cell::OnceCell;
use std::process::Command;

use crashproof_finding::DurableByKind::{Exit, Fence};
use crashproof_finding::Finding;
use crashproof_llvm::Context;

use super::*;
use crate::ir::Code;
use crate::observed::Observed;
use crate::plan::{PlanOptions, plan};
use crate::testing::Snippet;

fn repaired(snippet: &mut Snippet, findings: &[Finding]) -> (Plan, String) {
    let plan = plan(
        &snippet.program,
        &OnceCell::new(),
        findings,
        &Observed::default(),
        &PlanOptions::default(),
    );
    apply_and_print(snippet, plan)
}

/// Applies the plan, and says what the program prints then.
fn apply_and_print(snippet: &mut Snippet, plan: Plan) -> (Plan, String) {
    apply(&mut snippet.program, &plan).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let binary = folder.path().join("repaired");
    build(&snippet.program, &binary).unwrap();
    let output = Command::new(&binary).output().unwrap();
    assert!(output.status.success());
    (plan, String::from_utf8_lossy(&output.stdout).into_owned())
}

fn text_of(snippet: &mut Snippet, function: &str) -> String {
    let text = snippet.program.module.print();
    let functions = text.split("\ndefine ").skip(1);
    let of = |text: &&str| text.split('(').next().unwrap().ends_with(&format!("@{function}"));
    let found = functions.map(|text| text.split("\n}").next().unwrap()).find(of);
    found.unwrap().to_owned()
}

#[test]
fn flushes_and_fences_after_stores_of_all_kinds() {
    let context = Context::create();
    let mut code = Snippet::c(
        &context,
        "static char pool[4096] __attribute__((aligned(64)));
void foo(char *pm, const char *text) {
    pm[0] = 1; //@ store
    strcpy(pm + 1, text); //@ copy
    snprintf(pm + 100, 5, \"%s\", text); //@ print
    __atomic_fetch_add((long *)(pm + 200), 3, __ATOMIC_SEQ_CST); //@ add
    SFENCE(); //@ fence
}
int main(void) { foo(pool, \"hello\"); printf(\"%d %s %s %d\\n\", pool[0], pool + 1, pool + 100, pool[200]); return 0; }",
    );
    let findings = ["store", "copy", "print", "add"].map(|line| match line {
        "store" => code.missing_flush(&format!("foo@{line}"), Fence, "foo@fence"),
        _ => code.missing_flush(&format!("foo@{line}"), Exit, "exit"),
    });
    let (_, output) = repaired(&mut code, &findings);
    assert_eq!(output, "1 hello hell 3\n");
    let text = text_of(&mut code, "foo");
    assert_eq!(text.matches("call void @crashproof.flush(").count(), 4, "{text}");
}

#[test]
fn copies_keep_their_debug_information_and_share_statics() {
    let context = Context::create();
    let mut code = Snippet::c(
        &context,
        "static int calls;
static int scale(int v) { static int factor = 2; return factor++ * v; }
static void set(int *at, int v) {
    calls++;
    *at = scale(v); //@ store
}
static void (*volatile pointer)(int *, int) = set;
int main(void) {
    int *pm = malloc(64);
    set(pm, 1); //@ direct
    pointer(pm + 1, 1);
    printf(\"%d %d %d\\n\", pm[0], pm[1], calls);
    return 0;
}",
    );
    let finding = code.missing_flush("set@store main@direct", Exit, "exit");
    let plain = plan(
        &code.program,
        &OnceCell::new(),
        &[finding],
        &Observed::default(),
        &PlanOptions::default(),
    );
    let Edit::Flush { stores, .. } = &plain.fixes[0].edit else {
        panic!("{plain:?}")
    };
    let main = code.program.module.function("main").unwrap();
    let calls: Vec<Place> = main
        .code()
        .filter(|call| call.is_indirect_call() || call.called_function().is_some_and(|callee| callee.name() == "set"))
        .filter_map(Value::place)
        .collect();
    assert_eq!(calls.len(), 2);
    let subprogram = |call: &Place| crate::plan::Fix {
        edit: Edit::Subprogram {
            call: call.clone(),
            clone: "set_persist".into(),
            fence: true,
        },
        ..plain.fixes[0].clone()
    };
    let plan = Plan {
        fixes: calls.iter().map(subprogram).collect(),
        clones: vec![PersistentFunction {
            original: "set".into(),
            name: "set_persist".into(),
            flushes: vec![stores.clone()],
            ..PersistentFunction::default()
        }],
        left: Vec::new(),
    };
    let (_, output) = apply_and_print(&mut code, plan);
    assert_eq!(output, "2 3 2\n");
    let (original, copy) = (text_of(&mut code, "set"), text_of(&mut code, "set_persist"));
    assert!(!original.contains("crashproof.flush"), "{original}");
    assert!(copy.contains("crashproof.flush") && copy.contains("!dbg"), "{copy}");
    let main = text_of(&mut code, "main");
    assert_eq!(main.matches("llvm.x86.sse.sfence").count(), 2, "{main}");
    assert!(main.contains("select i1") && main.contains("@set_persist"), "{main}");
}

#[test]
fn a_plan_for_another_program_is_refused() {
    let context = Context::create();
    let mut code = Snippet::c(&context, "int main(void) { return 0; }");
    let after = Place {
        function: "main".into(),
        instruction: 1000,
        position: None,
    };
    let fix = crate::plan::Fix {
        findings: vec![0],
        edit: Edit::Fence { after },
        safe_by: crate::plan::SafeBy::FenceInsertion,
        candidates: Vec::new(),
    };
    let plan = Plan {
        fixes: vec![fix],
        ..Plan::default()
    };
    assert!(matches!(
        apply(&mut code.program, &plan),
        Err(ApplyError::NoSuchPlace { .. })
    ));
}
