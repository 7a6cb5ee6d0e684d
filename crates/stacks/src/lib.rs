//! What a call stack says: whose code it is, which function of PMDK the program called, where in the source it is.
//!
//! Everything is found out on first use and kept per stack: a trace has millions of events and thousands of stacks.
#![forbid(unsafe_code)]

pub mod code;
pub mod helper;
pub mod registers;

use std::sync::Arc;

use crashproof_finding as report;
pub use crashproof_finding::stack::{is_language_runtime, is_pmdk};
use crashproof_library as library;
use crashproof_trace::symbols::{SourceFrame, Symbolizer, files};
use crashproof_trace::{Frame, Module, ModuleId, StackId, Tables};
use helper::Evidence;
use rustc_hash::FxHashMap;

/// Whose code made an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    Program,
    /// A library of PMDK, on its own account or asked by the program.
    Pmdk,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ModuleKind {
    Program,
    Pmdk,
    /// memcpy and its like: the caller is who stores.
    CRuntime,
}

fn module_kind(module: Option<&Module>) -> ModuleKind {
    let Some(name) = module.map(|m| file_name(&m.path)) else {
        return ModuleKind::Program;
    };
    if is_pmdk(name) {
        ModuleKind::Pmdk
    } else if is_language_runtime(name) {
        ModuleKind::CRuntime
    } else {
        ModuleKind::Program
    }
}

pub fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The function of PMDK that the program called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub function: Option<String>,
    pub library: String,
}

impl Entry {
    /// Whether it does what the program asked and nothing else, so that the event is the program's: pmem_persist and its
    /// like. All other functions flush and fence on their own account.
    pub fn is_persist_primitive(&self) -> bool {
        match &self.function {
            Some(function) => library::only_persists(function),
            // libpmem2 hands out pointers to functions that, stripped, have no name.
            None => self.library.starts_with("libpmem2"),
        }
    }

    /// Whether it copies what the program asked it to copy.
    pub fn is_copy(&self) -> bool {
        self.function
            .as_ref()
            .is_some_and(|function| library::is_pmdk(function) && library::destination(function).is_some())
    }
}

/// A stack with source positions.
#[derive(Clone, Debug, Default)]
pub struct Symbolized {
    pub frames: Vec<report::Frame>,
    /// Which of them have no line of their own, only a nearest one.
    pub approximate: Vec<bool>,
}

/// Says of a function, by its name and its file, whether it is a helper.
type IsHelper = dyn Fn(&str, Option<&str>) -> bool + Send + Sync;

/// The helpers that the user declares.
#[derive(Clone, Default)]
pub struct DeclaredHelpers(Option<Arc<IsHelper>>);

impl DeclaredHelpers {
    /// Those functions of which `is_helper` says so, by name and file.
    pub fn new(is_helper: impl Fn(&str, Option<&str>) -> bool + Send + Sync + 'static) -> DeclaredHelpers {
        DeclaredHelpers(Some(Arc::new(is_helper)))
    }

    fn contains(&self, symbol: &SourceFrame) -> bool {
        match (&self.0, &symbol.function) {
            (Some(is_helper), Some(function)) => is_helper(function, symbol.file.as_deref()),
            _ => false,
        }
    }
}

impl std::fmt::Debug for DeclaredHelpers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "some" } else { "none" })
    }
}

#[derive(Default)]
pub struct Stacks {
    symbolizer: Symbolizer,
    origins: Vec<Option<Origin>>,
    symbols: FxHashMap<(Option<ModuleId>, u64, bool), Vec<SourceFrame>>,
    declared: DeclaredHelpers,
    /// Read when a frame of theirs is first shown.
    modules: FxHashMap<ModuleId, Option<Evidence>>,
    /// Which of the source frames of an address are of helpers.
    helpers: FxHashMap<(ModuleId, u64), Vec<bool>>,
}

impl Stacks {
    /// With the helpers that the user declares, beside those that are found.
    pub fn new(declared: DeclaredHelpers) -> Stacks {
        Stacks {
            declared,
            ..Stacks::default()
        }
    }

    /// The helpers that the user declares.
    pub fn declared(&self) -> &DeclaredHelpers {
        &self.declared
    }

    #[inline]
    pub fn origin(&mut self, stack: StackId, tables: &Tables) -> Origin {
        match self.origins.get(stack.index()) {
            Some(Some(origin)) => *origin,
            _ => self.find_origin(stack, tables),
        }
    }

    #[cold]
    fn find_origin(&mut self, stack: StackId, tables: &Tables) -> Origin {
        let kind = tables
            .frames(stack)
            .iter()
            .map(|frame| module_kind(frame.module.and_then(|id| tables.module(id))))
            .find(|kind| *kind != ModuleKind::CRuntime);
        let origin = if kind == Some(ModuleKind::Pmdk) {
            Origin::Pmdk
        } else {
            Origin::Program
        };
        if self.origins.len() <= stack.index() {
            self.origins.resize(stack.index() + 1, None);
        }
        self.origins[stack.index()] = Some(origin);
        origin
    }

    /// Whether the program did this of its own accord: it is neither PMDK's nor in what PMDK calls.
    pub fn is_by_program(&mut self, stack: StackId, tables: &Tables) -> bool {
        self.origin(stack, tables) == Origin::Program && !self.is_callback(stack, tables)
    }

    /// Whether code of PMDK called the code that this happened in: a constructor of an object, for example.
    pub fn is_callback(&self, stack: StackId, tables: &Tables) -> bool {
        let kinds = tables
            .frames(stack)
            .iter()
            .map(|frame| module_kind(frame.module.and_then(|id| tables.module(id))));
        kinds
            .skip_while(|kind| *kind != ModuleKind::Program)
            .any(|kind| kind == ModuleKind::Pmdk)
    }

    /// Whether the instruction itself is in the C library: a large `memcpy` between ordinary buffers ends in a fence.
    pub fn is_in_c_runtime(&self, stack: StackId, tables: &Tables) -> bool {
        let innermost = tables.frames(stack).first();
        innermost.is_some_and(|f| module_kind(f.module.and_then(|id| tables.module(id))) == ModuleKind::CRuntime)
    }

    /// The function of PMDK that the program called and within which this happened.
    pub fn entry(&mut self, stack: StackId, tables: &Tables) -> Option<Entry> {
        let mut entry = None;
        for (depth, frame) in tables.frames(stack).iter().enumerate() {
            match module_kind(frame.module.and_then(|id| tables.module(id))) {
                ModuleKind::Program => break,
                ModuleKind::CRuntime => {}
                ModuleKind::Pmdk => entry = Some((depth, *frame)),
            }
        }
        let (depth, frame) = entry?;
        let module = tables.module(frame.module?)?;
        let library = file_name(&module.path).to_owned();
        let function = self
            .symbols(frame, depth > 0, tables)
            .last()
            .and_then(|f| f.function.clone());
        Some(Entry { function, library })
    }

    /// The source frames of one code address, innermost first.
    pub fn symbols(&mut self, frame: Frame, is_return_address: bool, tables: &Tables) -> &[SourceFrame] {
        let Stacks {
            symbolizer, symbols, ..
        } = self;
        symbols
            .entry((frame.module, frame.address, is_return_address))
            .or_insert_with(|| match frame.module.and_then(|id| tables.module(id)) {
                Some(module) => symbolizer.frames(module, frame.address, is_return_address),
                None => Vec::new(),
            })
    }

    pub fn symbolize(&mut self, stack: StackId, tables: &Tables) -> Symbolized {
        let mut out = Symbolized::default();
        // Beyond the frame to blame, nobody asks for helpers.
        let mut is_decided = false;
        for (depth, &frame) in tables.frames(stack).iter().enumerate() {
            let module = frame.module.and_then(|id| tables.module(id)).map(|m| m.path.clone());
            let symbols = self.symbols(frame, depth > 0, tables);
            if symbols.is_empty() {
                out.frames.push(report::Frame {
                    module,
                    address: frame.address,
                    ..Default::default()
                });
                out.approximate.push(false);
                continue;
            }
            let symbols = symbols.to_vec();
            let helpers = match is_decided {
                true => vec![false; symbols.len()],
                false => self.helpers(frame, depth > 0, &symbols, tables),
            };
            for (symbol, helper) in symbols.iter().zip(helpers) {
                let frame = report::Frame {
                    function: symbol.function.clone(),
                    file: symbol.file.clone(),
                    line: symbol.line,
                    column: symbol.column,
                    module: module.clone(),
                    address: frame.address,
                    inlined: symbol.inlined,
                    helper: helper && !is_decided,
                };
                is_decided |= !frame.helper && frame.may_be_blamed();
                out.frames.push(frame);
                out.approximate.push(symbol.approximate);
            }
        }
        out
    }

    /// Which of the source frames of one code address are of helpers.
    fn helpers(
        &mut self,
        frame: Frame,
        is_return_address: bool,
        symbols: &[SourceFrame],
        tables: &Tables,
    ) -> Vec<bool> {
        let Stacks {
            declared,
            modules,
            helpers,
            ..
        } = self;
        let address = frame.address.wrapping_sub(is_return_address.into());
        let found = frame.module.and_then(|id| Some((id, tables.module(id)?)));
        let mut found = match found {
            Some((id, module)) if module_kind(Some(module)) == ModuleKind::Program => helpers
                .entry((id, address))
                .or_insert_with(|| {
                    let evidence = modules.entry(id).or_insert_with(|| {
                        let (code, debug) = files(module)?;
                        Some(Evidence::read(code, debug))
                    });
                    match evidence {
                        Some(evidence) => evidence.helpers(address, symbols),
                        None => vec![false; symbols.len()],
                    }
                })
                .clone(),
            _ => vec![false; symbols.len()],
        };
        for (found, symbol) in found.iter_mut().zip(symbols) {
            *found |= declared.contains(symbol);
        }
        found
    }

    /// What the symbolizer could not do.
    pub fn warnings(&self) -> &[String] {
        self.symbolizer.warnings()
    }
}
