//! What planning a repair costs: time and memory, for a program built by `crashproof cc` and findings that are made up, at stores all over it.
//! `crashproof-bench plan BINARY [FINDINGS]`

use std::cell::OnceCell;
use std::path::Path;
use std::time::Instant;

use crashproof_finding::{DurableBy, DurableByKind, Finding, Frame, Kind, Severity};
use crashproof_llvm::{Context, Value};
use crashproof_program::Program;
use crashproof_program::pointers::{Callees, ObjectId, PointsTo};
use crashproof_repair::ir::Code;
use crashproof_repair::observed::Observed;
use crashproof_repair::plan::{Edit, PlanOptions, plan};
use std::collections::{BTreeSet, HashMap};

const FINDINGS: usize = 200;
/// Frames of an invented stack.
const DEPTH: usize = 6;

pub(crate) fn measure(binary: &Path, findings: Option<&str>) {
    let wanted: usize = findings.and_then(|number| number.parse().ok()).unwrap_or(FINDINGS);
    let context = Context::create();
    let start = Spent::now();
    let program = Program::load(binary, &context).unwrap_or_else(|error| panic!("{error}"));
    let functions: Vec<Value> = program
        .module
        .functions()
        .filter(|function| function.has_body())
        .collect();
    let instructions: usize = functions.iter().map(|function| function.code().count()).sum();
    println!(
        "{}: {} functions, {instructions} instructions, linked in {}, {:.0} MB",
        binary.display(),
        functions.len(),
        start.so_far(),
        peak_megabytes()
    );
    let start = Spent::now();
    let analysed = OnceCell::new();
    let points_to = analysed.get_or_init(|| PointsTo::of(&program.module));
    let statistics = points_to.statistics();
    println!(
        "pointer analysis: {}, {:.0} MB; {statistics:?}",
        start.so_far(),
        peak_megabytes()
    );
    quality(&functions, points_to);
    let findings = invent(&functions, wanted);
    let start = Spent::now();
    let plan = plan(
        &program,
        &analysed,
        &findings,
        &Observed::default(),
        &PlanOptions::default(),
    );
    let subprograms = plan
        .fixes
        .iter()
        .filter(|fix| matches!(fix.edit, Edit::Subprogram { .. }));
    let scores = plan
        .fixes
        .iter()
        .flat_map(|fix| &fix.candidates)
        .filter_map(|candidate| candidate.score);
    let scores: BTreeSet<i64> = scores.collect();
    let hoisting = plan.fixes.iter().filter(|fix| fix.candidates.len() > 1);
    let (telling, all) = hoisting.fold((0, 0), |(telling, all), fix| {
        let scores: BTreeSet<i64> = fix.candidates.iter().filter_map(|candidate| candidate.score).collect();
        (telling + usize::from(scores.len() > 1), all + 1)
    });
    println!(
        "{all} fixes had a choice; in {telling} of them the scores differ ({} different scores)",
        scores.len()
    );
    println!(
        "planning (after the pointer analysis): {} findings, {}, {:.0} MB; {} fixes, {} of them persistent subprograms, {} copies, {} left",
        findings.len(),
        start.so_far(),
        peak_megabytes(),
        plan.fixes.len(),
        subprograms.count(),
        plan.clones.len(),
        plan.left.len()
    );
}

/// What the pointer analysis can say of stores through pointers, and of calls.
fn quality(functions: &[Value], points_to: &PointsTo) {
    let (mut unknown, mut known) = (0, Vec::new());
    let (mut closed, mut open) = (0, 0);
    for instruction in functions.iter().flat_map(|function| function.code()) {
        if instruction.is_indirect_call() {
            match points_to.callees(instruction) {
                Callees::Closed(_) => closed += 1,
                Callees::Open(_) => open += 1,
            }
        }
        let pointer = instruction.store_pointer();
        let Some(pointer) =
            pointer.filter(|pointer| !pointer.base().is_alloca() && !pointer.base().is_global_variable())
        else {
            continue;
        };
        let objects = points_to.objects(pointer);
        match objects.contains(&ObjectId::UNKNOWN) {
            true => unknown += 1,
            false => known.push(objects.len()),
        }
    }
    known.sort_unstable();
    let at = |share: usize| known.get(known.len() * share / 100).copied().unwrap_or(0);
    println!(
        "stores through pointers: {unknown} perhaps to unknown memory, {} to so many objects: {} (median), {} (90%); calls through pointers: {closed} closed, {open} open",
        known.len(),
        at(50),
        at(90)
    );
}

/// Missing flushes at stores spread evenly, each on a stack of direct calls.
fn invent(functions: &[Value], wanted: usize) -> Vec<Finding> {
    let mut callers: HashMap<Value, Value> = HashMap::new();
    let mut stores = Vec::new();
    for &function in functions {
        for instruction in function.code() {
            if let Some(callee) = instruction.called_function().filter(|callee| *callee != function) {
                callers.entry(callee).or_insert(instruction);
            }
            let to_memory = instruction.store_pointer().map(Value::base);
            if to_memory.is_some_and(|base| !base.is_alloca() && !base.is_global_variable()) {
                stores.push(instruction);
            }
        }
    }
    let step = (stores.len() / wanted.max(1)).max(1);
    let findings = stores.into_iter().step_by(step).take(wanted);
    findings
        .filter_map(|store| {
            let mut stack = vec![frame(store)?];
            let mut at = store;
            while stack.len() < DEPTH
                && let Some(call) = at.function().and_then(|function| callers.get(&function))
                && let Some(frame) = frame(*call)
            {
                stack.push(frame);
                at = *call;
            }
            Some(missing_flush(stack))
        })
        .collect()
}

fn frame(instruction: Value) -> Option<Frame> {
    let position = instruction.position()?;
    Some(Frame {
        function: instruction.function()?.source_name().map(str::to_owned),
        file: Some(position.file.to_string_lossy().into_owned()),
        line: Some(position.line),
        column: Some(position.column),
        ..Frame::default()
    })
}

fn missing_flush(stack: Vec<Frame>) -> Finding {
    let exit = Frame {
        function: Some("exit".into()),
        ..Frame::default()
    };
    Finding {
        kind: Kind::MissingFlush,
        severity: Severity::Error,
        file: None,
        line: None,
        column: None,
        function: None,
        count: 1,
        message: String::new(),
        address: None,
        stack,
        durable_by: Some(DurableBy {
            kind: DurableByKind::Exit,
            stack: vec![exit],
        }),
        approximate: false,
        related: Vec::new(),
        notes: Vec::new(),
        help: None,
        crash: None,
        order: Vec::new(),
    }
}

/// On a machine that does other things too, the time of the processor says more.
struct Spent {
    start: Instant,
    processor: f64,
}

impl Spent {
    fn now() -> Spent {
        Spent {
            start: Instant::now(),
            processor: processor_seconds(),
        }
    }

    fn so_far(&self) -> String {
        let (processor, elapsed) = (processor_seconds() - self.processor, self.start.elapsed().as_secs_f64());
        format!("{elapsed:.2} s ({processor:.2} s of the processor)")
    }
}

/// Of this process, in its own code and in the kernel's, so far.
fn processor_seconds() -> f64 {
    /// Of the clock that the kernel counts by, a second.
    const TICKS: f64 = 100.0;
    let status = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = status.rsplit(')').next().unwrap_or_default();
    let fields = after_name.split_whitespace().skip(11).take(2);
    fields.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / TICKS
}

/// Of this process, so far.
fn peak_megabytes() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kilobytes.unwrap_or(0.0) / 1024.0
}
