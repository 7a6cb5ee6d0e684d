//! Source positions of code addresses. They come from DWARF (4 and 5, in the module or in a separate debug
//! file), with inlined frames. Without DWARF, the symbol tables give the function.
//!
//! Nothing is ever taken from a file that is not the one that ran: its build id must be the recorded one. A
//! failure is a warning and never an error, because a finding with a bare address is still a finding.

mod debug_files;
mod merged;
mod symbol_table;

use std::fmt::Display;
use std::path::{Path, PathBuf};

use addr2line::{Loader, Location};
use rustc_hash::FxHashMap;

use crate::event::Module;
use crate::tracked;
use debug_files::ObjectInfo;
pub use debug_files::open_regular;
use merged::MergedStores;
use symbol_table::SymbolTable;

/// A frame of source code. An address in an inlined function has several, innermost first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceFrame {
    /// Demangled name of the function.
    pub function: Option<String>,
    /// Name of the function in the object file, if the debug info has the function.
    pub linkage_name: Option<String>,
    /// Path of the source file in the debug info, joined with the compilation directory. For a place of an
    /// imported trace, the file that the log gives.
    pub file: Option<String>,
    /// Number of the line, counted from 1.
    pub line: Option<u32>,
    /// Number of the column, counted from 1.
    pub column: Option<u32>,
    /// Whether the function is inlined into that of the next frame.
    pub inlined: bool,
    /// Whether the line is not exactly the instruction's, because the instruction has no line of its own (the
    /// optimiser moved it, and this is the nearest known line) or several.
    pub approximate: bool,
}

/// Looks up addresses. It keeps the object files that it opened.
pub struct Symbolizer {
    debug_roots: Vec<PathBuf>,
    modules: FxHashMap<(String, Vec<u8>), ModuleSymbols>,
    warnings: Vec<String>,
}

impl Default for Symbolizer {
    /// A symbolizer that looks for separate debug files where distributions install them.
    fn default() -> Self {
        Symbolizer::new(vec!["/usr/lib/debug".into()])
    }
}

impl Symbolizer {
    /// A symbolizer that looks for separate debug files next to the module and below these directories.
    pub fn new(debug_roots: Vec<PathBuf>) -> Symbolizer {
        Symbolizer {
            debug_roots,
            modules: FxHashMap::default(),
            warnings: Vec::new(),
        }
    }

    /// The source frames of an address relative to the module's load bias, innermost (inlined) first. There
    /// is at least one frame, which is empty if nothing is known. A return address is looked up as the call
    /// before it.
    pub fn frames(&mut self, module: &Module, address: u64, is_return_address: bool) -> Vec<SourceFrame> {
        if let Some(place) = &module.place {
            return vec![SourceFrame {
                function: place.function.clone(),
                file: place.file.clone(),
                line: place.line,
                ..SourceFrame::default()
            }];
        }
        let address = if is_return_address {
            address.wrapping_sub(1)
        } else {
            address
        };
        let key = (module.path.clone(), module.build_id.clone());
        let symbols = self
            .modules
            .entry(key)
            .or_insert_with(|| ModuleSymbols::open(module, &self.debug_roots, &mut self.warnings));
        let mut frames = symbols.frames(address, &mut self.warnings);
        frames[0].approximate |= !is_return_address && symbols.is_merged(address);
        frames
    }

    /// Messages about files that could not be used, so that positions are missing. Each is there once.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

struct ModuleSymbols {
    path: String,
    /// The debug info, of the module itself or of a separate file.
    loader: Option<Loader>,
    debug_file: Option<PathBuf>,
    /// Read when the line of an instruction is first looked up.
    merged: Option<MergedStores>,
    /// Files with symbol tables, which are read when they are needed.
    symbol_files: Vec<PathBuf>,
    symbols: Option<SymbolTable>,
    warned: bool,
    /// The program within the module's file, if it is the one that ran.
    _tracked: Option<tempfile::TempPath>,
}

impl ModuleSymbols {
    fn open(module: &Module, debug_roots: &[PathBuf], warnings: &mut Vec<String>) -> ModuleSymbols {
        let mut this = ModuleSymbols {
            path: module.path.clone(),
            loader: None,
            debug_file: None,
            merged: None,
            symbol_files: Vec::new(),
            symbols: None,
            warned: false,
            _tracked: None,
        };
        // Code of the kernel has no file.
        if module.path.is_empty() || module.path.starts_with('[') || module.path.starts_with("linux-vdso") {
            return this;
        }
        let mut path = Path::new(&module.path);
        let mut usable = usable_module(path, &module.build_id);
        let tracked = match usable {
            Err(_) => tracked::extract_built(path, &module.build_id),
            Ok(_) => None,
        };
        if let Some(within) = &tracked {
            path = within;
            usable = usable_module(path, &module.build_id);
        }
        let debug_file = match usable {
            Ok(info) => {
                this.symbol_files.push(path.into());
                if info.has_debug_info {
                    Some(path.into())
                } else {
                    debug_files::find(path, &info, debug_roots)
                }
            }
            Err(problem) => {
                // The debug file of the module that ran may still be installed.
                let found = debug_files::by_build_id(&module.build_id, debug_roots);
                if found.is_none() {
                    warnings.push(problem);
                }
                found
            }
        };
        let Some(debug_file) = debug_file else {
            this._tracked = tracked;
            return this;
        };
        if is_c_library(path) {
            this.symbol_files.push(debug_file);
            return this;
        }
        let supplement = debug_files::supplement(&debug_file, debug_roots).unwrap_or_else(|missing| {
            warnings.push(format!(
                "debug info of {} is partly in {missing}, which is not there: functions may lack names; install it",
                module.path
            ));
            None
        });
        match Loader::new_with_sup(&debug_file, supplement) {
            Ok(loader) => {
                this.loader = Some(loader);
                this.debug_file = Some(debug_file.clone());
            }
            Err(error) => this.warn(warnings, error),
        }
        if debug_file != path {
            this.symbol_files.push(debug_file);
        }
        this._tracked = tracked;
        this
    }

    fn warn(&mut self, warnings: &mut Vec<String>, error: impl Display) {
        if !self.warned {
            self.warned = true;
            warnings.push(format!(
                "cannot read the debug info of {}: {error}; lines may be missing",
                self.path
            ));
        }
    }

    /// Whether the store at this address also belongs to another line than the one in the debug info. Line
    /// tables of gcc and `crashproof cc` tell this; those of clang do not.
    fn is_merged(&mut self, address: u64) -> bool {
        let Some(file) = &self.debug_file else {
            return false;
        };
        self.merged
            .get_or_insert_with(|| MergedStores::read(file))
            .contains(address)
    }

    fn frames(&mut self, address: u64, warnings: &mut Vec<String>) -> Vec<SourceFrame> {
        let mut frames = Vec::new();
        if let Some(loader) = &self.loader {
            match source_frames(loader, address) {
                Ok(found) => frames = found,
                Err(error) => self.warn(warnings, error),
            }
        }
        if frames.is_empty() {
            frames.push(SourceFrame::default());
        }
        let symbols = self
            .symbols
            .get_or_insert_with(|| SymbolTable::read(&self.symbol_files));
        let symbol = symbols.find(address);
        let symbol_start = symbol.as_ref().map(|symbol| symbol.address);
        if let Some(outermost) = frames.last_mut()
            && outermost.function.is_none()
        {
            outermost.function = symbol.map(|symbol| symbol.name);
        }
        if let Some(loader) = &self.loader
            && frames[0].line.is_none()
        {
            // Functions without a symbol are hardly larger than this.
            let start = symbol_start.unwrap_or(address.saturating_sub(4096));
            if let Some(position) = nearest_line(loader, start, address) {
                position.apply(&mut frames[0]);
                frames[0].approximate = true;
            }
        }
        frames
    }
}

/// Whether the module is the C library or its loader. They are in every stack, and no user changes their
/// lines. Reading their debug info would take longer than most programs run. Their functions have names from
/// the symbol tables.
fn is_c_library(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    name.starts_with(b"libc.so.") || name.starts_with(b"ld-linux-")
}

/// A position in source code that has a line.
struct Position {
    file: Option<String>,
    line: Option<u32>,
    column: Option<u32>,
}

impl Position {
    fn new(location: &Location) -> Position {
        Position {
            file: location.file.map(String::from),
            line: location.line,
            // Column 0 stands for the left edge: the column is not known.
            column: location.column.filter(|&column| column != 0),
        }
    }

    fn apply(self, frame: &mut SourceFrame) {
        (frame.file, frame.line, frame.column) = (self.file, self.line, self.column);
    }
}

/// The frames of the address in DWARF, innermost first; empty if there is none.
fn source_frames(loader: &Loader, address: u64) -> Result<Vec<SourceFrame>, Box<dyn std::error::Error>> {
    let mut found = Vec::new();
    let mut frames = loader.find_frames(address)?;
    while let Some(frame) = frames.next()? {
        let mut source = SourceFrame::default();
        if let Some(name) = &frame.function {
            source.function = Some(name.demangle()?.into_owned());
            source.linkage_name = Some(name.raw_name()?.into_owned());
        }
        if let Some(location) = &frame.location {
            Position::new(location).apply(&mut source);
        }
        source.inlined = true;
        found.push(source);
    }
    if let Some(outermost) = found.last_mut() {
        outermost.inlined = false;
    }
    Ok(found)
}

/// The nearest line before the address, from `start` on. A line in the same inlined function, whose name the
/// frame has, is preferred.
fn nearest_line(loader: &Loader, start: u64, address: u64) -> Option<Position> {
    let function = innermost(loader, address);
    let rows: Vec<(u64, Position)> = loader
        .find_location_range(start, address.saturating_add(1))
        .ok()?
        .filter(|(_, _, location)| location.line.is_some())
        .map(|(row, _, location)| (row, Position::new(&location)))
        .collect();
    let same = rows
        .iter()
        .rposition(|(row, _)| *row >= start && innermost(loader, *row) == function);
    let index = same.or(rows.len().checked_sub(1))?;
    rows.into_iter().nth(index).map(|(_, position)| position)
}

/// The offset in the debug info of the innermost function at the address, which identifies the function.
fn innermost(loader: &Loader, address: u64) -> Option<usize> {
    Some(loader.find_frames(address).ok()?.next().ok()??.dw_die_offset?.0)
}

/// The file with the code of a module and the file with its debug info, which may be the same. `None` if the
/// module has no debug info, or if its file is not the one that was recorded.
pub fn files(module: &Module) -> Option<(PathBuf, PathBuf)> {
    if module.place.is_some() {
        return None;
    }
    let path = PathBuf::from(&module.path);
    let info = usable_module(&path, &module.build_id).ok()?;
    let debug = match info.has_debug_info {
        true => path.clone(),
        false => debug_files::find(&path, &info, &["/usr/lib/debug".into()])?,
    };
    Some((path, debug))
}

/// The facts about the module's file if it is the file that was recorded, or else the reason why it cannot be
/// used.
fn usable_module(path: &Path, build_id: &[u8]) -> Result<ObjectInfo, String> {
    let info = ObjectInfo::read(path).map_err(|error| {
        format!(
            "cannot read {}: {error}; its functions and lines are not known",
            path.display()
        )
    })?;
    if !build_id.is_empty() && info.build_id != build_id {
        return Err(format!(
            "{} has changed since it was recorded (its build id is another): its functions and lines are not known; \
             record again",
            path.display()
        ));
    }
    Ok(info)
}
