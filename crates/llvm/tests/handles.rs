//! What handles promise, and the operations that are more than a call of LLVM.

use crashproof_llvm::{Builder, Context, IntPredicate, Linkage, Module, Opcode, Value};

const TEXT: &str = r#"
target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
%pair = type { i32, [4 x i64] }
@zero = global i64 0
@table = global ptr @callee
define internal i64 @callee(i64 %x) {
  ret i64 %x
}
define i64 @caller(ptr %p, i64 %i) {
entry:
  %field = getelementptr inbounds %pair, ptr %p, i64 1, i32 1, i64 2
  %further = getelementptr i8, ptr %field, i64 -8
  %variable = getelementptr i64, ptr %further, i64 %i
  %loaded = load i64, ptr %variable
  %unused = add i64 %loaded, 1
  %called = call i64 @callee(i64 %loaded)
  ret i64 %called
}
"#;

fn module(context: &Context) -> Module<'_> {
    context.create_module("empty").parse_text(TEXT).unwrap()
}

fn named<'m>(module: &'m Module, name: &str) -> Value<'m> {
    let mut instructions = module.functions().flat_map(Value::instructions);
    instructions.find(|instruction| instruction.name() == name).unwrap()
}

#[test]
fn questions_that_make_no_sense_have_no_answer() {
    let context = Context::create();
    let module = module(&context);
    let function = module.function("caller").unwrap();
    let instruction = named(&module, "loaded");
    for value in [function, instruction, module.global("zero").unwrap()] {
        assert_eq!(value.called_value(), None);
        assert_eq!(value.predicate(), None);
        assert_eq!(value.unsigned(), None);
        assert_eq!(value.operand(1000), None);
        assert_eq!(value.as_parameter(), None);
        assert!(value.incoming().is_empty() && value.indices().is_empty() && value.normal_destination().is_none());
        assert!(value.debug_location().is_none() && value.subprogram().is_none() && value.declares().is_none());
    }
    assert!(instruction.blocks().next().is_none() && instruction.parameters().next().is_none());
    assert!(function.block().is_none() && function.next().is_none() && function.opcode().is_none());
    assert!(instruction.ty().element(0).is_none() && function.ty().bits().is_none());
    assert_eq!(module.layout().offset_of(instruction.ty(), 7), 0);
}

#[test]
fn address_computations_are_followed_to_what_varies() {
    let context = Context::create();
    let module = module(&context);
    let [field, further, variable] = ["field", "further", "variable"].map(|name| named(&module, name));
    let pointer = field.operand_at(0);
    // A pair has 40 bytes, its array begins at 8.
    assert_eq!(further.base_and_offset(|_| true), (pointer, Some(40 + 8 + 16 - 8)));
    assert_eq!(further.base_and_offset(Value::is_in_bounds), (further, Some(0)));
    assert_eq!(variable.base_and_offset(|_| true), (pointer, None));
}

#[test]
fn what_all_modules_share_has_no_users() {
    let context = Context::create();
    let (one, other) = (module(&context), module(&context));
    let [ones, others] = [&one, &other].map(|module| named(module, "unused").operand_at(1));
    assert_eq!(ones, others, "constants are there once");
    assert!(ones.users().is_empty());
    assert_eq!(one.function("callee").unwrap().users().len(), 2);
    assert_eq!(named(&one, "loaded").users().len(), 2);
}

#[test]
fn a_removed_instruction_is_nowhere() {
    let context = Context::create();
    let module = module(&context);
    let (unused, loaded) = (named(&module, "unused"), named(&module, "loaded"));
    let builder = Builder::new(&module);
    builder.remove(unused);
    assert!(unused.block().is_none() && unused.next().is_none() && !loaded.users().contains(&unused));
    assert_eq!(unused.opcode(), Some(Opcode::LLVMAdd));
    module.verify().unwrap();
}

#[test]
#[should_panic(expected = "a value of another module")]
fn modules_do_not_mix() {
    let context = Context::create();
    let (one, other) = (module(&context), module(&context));
    let builder = Builder::new(&one);
    builder.before(named(&one, "called"), None);
    builder.as_i64(named(&other, "loaded"));
}

#[test]
#[should_panic(expected = "the builder has no place")]
fn nothing_is_built_nowhere() {
    let context = Context::create();
    let module = module(&context);
    let builder = Builder::new(&module);
    builder.as_i64(named(&module, "loaded"));
}

#[test]
fn a_block_is_split_and_joined_again() {
    let context = Context::create();
    let module = module(&context);
    let builder = Builder::new(&module);
    let [call, loaded, unused] = ["called", "loaded", "unused"].map(|name| named(&module, name));
    let (head, tail) = builder.split_before(call);
    let extra = builder.block_before(tail);
    assert_eq!(loaded.name(), "loaded", "what is moved keeps its name");
    builder.at_end(head, None);
    let is_zero = builder.equal(loaded, builder.i64(0));
    builder.branch_if_unlikely(is_zero, extra, tail);
    builder.at_end(extra, None);
    let other = builder.clone_here(unused);
    builder.branch(tail);
    builder.before(call, None);
    let phi = builder.phi(loaded.ty());
    builder.add_incoming(phi, loaded, head);
    builder.add_incoming(phi, other, extra);
    builder.set_operand(call, 0, phi);
    let further = call.next().unwrap();
    builder.before(further, None);
    let small = builder.compare(IntPredicate::LLVMIntULT, call, builder.i64(7));
    assert_eq!(small.ty().bits(), Some(1));
    module.verify().unwrap();
    let function = module.function("caller").unwrap();
    assert_eq!(function.blocks().count(), 3);
    assert_eq!(head.successors(), [extra, tail]);
}

#[test]
fn functions_are_copied_within_a_module() {
    let context = Context::create();
    let mut module = module(&context);
    module
        .copy_functions(&[("caller", "caller_copy"), ("callee", "callee_copy")])
        .unwrap();
    module.verify().unwrap();
    for name in ["caller_copy", "callee_copy"] {
        assert_eq!(
            module.function(name).unwrap().linkage(),
            Some(Linkage::LLVMInternalLinkage)
        );
    }
    assert!(module.function("callee").unwrap().is_local());
    let copy = module.function("caller_copy").unwrap();
    let called = copy.instructions().find_map(Value::called_function).unwrap();
    assert_eq!(called.name(), "callee", "who redirects calls says so");
    assert_eq!(module.functions().count(), 4);
}

#[test]
fn an_alias_takes_over_a_name() {
    let context = Context::create();
    let mut module = module(&context);
    module.put_behind_alias("callee", "callee.internal");
    module.verify().unwrap();
    let function = module.function("callee.internal").unwrap();
    assert_eq!(
        named(&module, "called").called_value(),
        Some(function),
        "calls go straight"
    );
    let alias = module.global("table").unwrap().initializer().unwrap();
    assert_eq!((alias.name(), alias.unaliased()), ("callee", function));
}

#[test]
fn errors_are_llvms_words() {
    let context = Context::create();
    assert!(
        context
            .parse_bitcode(b"no bitcode")
            .is_err_and(|error| !error.is_empty())
    );
    let mut module = module(&context);
    assert!(
        module
            .parse_text("no IR")
            .is_err_and(|error| error.contains("expected"))
    );
    let other = module.parse_text("define i64 @caller() { ret i64 0 }").unwrap();
    let error = module.link_in(other).unwrap_err();
    assert!(error.contains("multiply defined"), "{error}");
}

#[test]
fn bitcode_comes_back_as_it_was_written() {
    let context = Context::create();
    let folder = std::env::temp_dir().join(format!("crashproof-llvm-{}", std::process::id()));
    let mut module = module(&context);
    module.write_bitcode(&folder).unwrap();
    let other = Context::create();
    let mut read = other.read_bitcode(&folder).unwrap();
    std::fs::remove_file(&folder).unwrap();
    let body = |text: String| text.split_once("%pair").map(|(_, body)| body.to_owned());
    assert_eq!(body(read.print()), body(module.print()));
    let missing = context.read_bitcode(&folder).err().unwrap();
    assert!(missing.contains("No such file"), "{missing}");
}
