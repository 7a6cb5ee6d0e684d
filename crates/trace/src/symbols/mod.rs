//! Source positions of code addresses: inlined frames from DWARF (4 and 5, in the module or in a separate debug file),
//! else the function from the symbol tables.
//!
//! Nothing is ever taken from a file that is not the one that ran: its build id must be the recorded one. What could not
//! be had is a warning, never an error, because a finding with a bare address is still a finding.

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

/// One frame of source code. An address in an inlined function has several, innermost first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceFrame {
    /// Demangled.
    pub function: Option<String>,
    /// As the debug info has it, if it knows the function.
    pub linkage_name: Option<String>,
    /// As in the debug info, joined with the compilation directory.
    pub file: Option<String>,
    pub line: Option<u32>,
    pub column: Option<u32>,
    /// Inlined into the next frame.
    pub inlined: bool,
    /// The instruction has no line of its own (moved by the optimiser; this is the nearest known one), or several.
    pub approximate: bool,
}

/// Looks up addresses, and keeps what it opened: object files are mapped, not read.
pub struct Symbolizer {
    debug_roots: Vec<PathBuf>,
    modules: FxHashMap<(String, Vec<u8>), ModuleSymbols>,
    warnings: Vec<String>,
}

impl Default for Symbolizer {
    /// Looks for separate debug files where distributions install them.
    fn default() -> Self {
        Symbolizer::new(vec!["/usr/lib/debug".into()])
    }
}

impl Symbolizer {
    /// Looks for separate debug files below these directories, beside those next to the module.
    pub fn new(debug_roots: Vec<PathBuf>) -> Symbolizer {
        Symbolizer {
            debug_roots,
            modules: FxHashMap::default(),
            warnings: Vec::new(),
        }
    }

    /// The source frames of an address relative to the module's load bias, innermost (inlined) first; at least one, which
    /// is empty if nothing is known. A return address is looked up as the call before it.
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

    /// What could not be looked up, each thing once.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

struct ModuleSymbols {
    path: String,
    /// The file with the debug info, the module itself or a separate one.
    loader: Option<Loader>,
    debug_file: Option<PathBuf>,
    /// Found out when an instruction's line is first asked for.
    merged: Option<MergedStores>,
    /// Files whose symbol tables are read when they are needed.
    symbol_files: Vec<PathBuf>,
    symbols: Option<SymbolTable>,
    warned: bool,
    /// The program within the module's file, if that is what ran.
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
        // The kernel's own code has no file.
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
                // The debug file of the very module may be installed still.
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

    /// Whether the store at this address is also of another line than the one that debug info names. gcc says that, and
    /// `crashproof cc`; clang does not.
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
            // A function is hardly larger where no symbol says where it begins.
            let start = symbol_start.unwrap_or(address.saturating_sub(4096));
            if let Some(position) = nearest_line(loader, start, address) {
                position.apply(&mut frames[0]);
                frames[0].approximate = true;
            }
        }
        frames
    }
}

/// The C library and its loader are in every stack, and their lines are nobody's to mend: reading their debug info would take longer than
/// most programs run. Their functions have names all the same.
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
            // Column 0 stands for the left edge, which is to say unknown.
            column: location.column.filter(|&column| column != 0),
        }
    }

    fn apply(self, frame: &mut SourceFrame) {
        (frame.file, frame.line, frame.column) = (self.file, self.line, self.column);
    }
}

/// What DWARF knows of the address, innermost first; empty if nothing.
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

/// The nearest line before the address, from `start` on: preferably in the same inlined function, whose name the frame
/// has.
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

/// Identifies the innermost function at the address by where the debug info has it.
fn innermost(loader: &Loader, address: u64) -> Option<usize> {
    Some(loader.find_frames(address).ok()?.next().ok()??.dw_die_offset?.0)
}

/// The files with the code and with the debug info of a module, which may be one; `None`: it has no debug info, or is not what was recorded.
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

/// What the module's file says, if it is the file that was recorded; else why not.
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
