//! Applies a plan to the bitcode (section 5.2): what has no good form in the source can still be repaired, and the result
//! compiled with full optimisation.
//!
//! Only insertions, copies of functions and redirected calls; LLVM's verifier has the last word.

mod binary;
mod edit;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use crashproof_llvm::{Module, Value};
use crashproof_program::Program;
use rustc_hash::FxHashMap;

use crate::ir;
use crate::plan::{Edit, PersistentFunction, Place, Plan};
pub use binary::build;
use edit::Editor;

#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    #[error("the bitcode has no instruction {} in `{}`; the plan is one for another build", place.instruction, place.function)]
    NoSuchPlace { place: Place },
    #[error("the bitcode has no function `{name}`; the plan is one for another build")]
    NoSuchFunction { name: String },
    #[error("nothing can be inserted after the call at instruction {} of `{}`, which may throw", place.instruction, place.function)]
    NoRoom { place: Place },
    #[error("cannot copy functions: {reason}")]
    Copy { reason: String },
    #[error("the repaired bitcode is invalid; please report this. LLVM says: {reason}")]
    Invalid { reason: String },
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: std::io::Error },
    #[error("cannot run {compiler}: {source}; install clang-19, or name it in CRASHPROOF_CLANG")]
    NoCompiler { compiler: String, source: std::io::Error },
    #[error("{compiler} could not make {}: {reason}", path.display())]
    Compiler {
        compiler: String,
        path: PathBuf,
        reason: String,
    },
}

/// Makes the plan's changes in the program's module. After an error the module is to be thrown away.
pub fn apply(program: &mut Program, plan: &Plan) -> Result<(), ApplyError> {
    copy(&mut program.module, &plan.clones)?;
    edit::link_flush(&mut program.module)?;
    let module = &program.module;
    // Places count instructions as they are: all are looked up before anything changes in a function.
    let mut places = Places::default();
    for fix in &plan.fixes {
        places.find_all(module, fix.edit.places())?;
    }
    for clone in &plan.clones {
        places.find_in_copy(module, clone)?;
    }
    let mut editor = Editor::new(module)?;
    for clone in &plan.clones {
        for group in &clone.flushes {
            editor.flush(&places.get_in(&clone.name, group)?)?;
        }
        for (call, copy) in &clone.calls {
            editor.redirect(places.copied(&clone.name, call)?, original_of(plan, copy)?, copy)?;
        }
        for after in &clone.fences {
            editor.fence(places.copied(&clone.name, after)?)?;
        }
    }
    for fix in &plan.fixes {
        match &fix.edit {
            Edit::Flush { stores, fence } => {
                let stores: Vec<Value> = stores.iter().map(|store| places.get(store)).collect::<Result<_, _>>()?;
                editor.flush(&stores)?;
                if let Some(&last) = stores.last().filter(|_| *fence) {
                    editor.fence(last)?;
                }
            }
            Edit::Fence { after } => editor.fence(places.get(after)?)?,
            Edit::Subprogram { call, clone, fence } => {
                let call = places.get(call)?;
                editor.redirect(call, original_of(plan, clone)?, clone)?;
                if *fence {
                    editor.fence(call)?;
                }
            }
            Edit::RemoveFlush { flush: void } | Edit::RemoveFence { fence: void } => editor.remove(places.get(void)?),
        }
    }
    module.verify().map_err(|reason| ApplyError::Invalid { reason })
}

/// `--out-bitcode`.
pub fn write(program: &Program, path: &Path) -> Result<(), ApplyError> {
    program.module.write_bitcode(path).map_err(|source| ApplyError::Write {
        path: path.into(),
        source,
    })
}

fn copy(module: &mut Module, clones: &[PersistentFunction]) -> Result<(), ApplyError> {
    if clones.is_empty() {
        return Ok(());
    }
    let lost = |clone: &&PersistentFunction| !module.function(&clone.original).is_some_and(Value::has_body);
    if let Some(clone) = clones.iter().find(lost) {
        return Err(ApplyError::NoSuchFunction {
            name: clone.original.clone(),
        });
    }
    let names: Vec<(&str, &str)> = clones
        .iter()
        .map(|clone| (clone.original.as_str(), clone.name.as_str()))
        .collect();
    module
        .copy_functions(&names)
        .map_err(|reason| ApplyError::Copy { reason })
}

fn original_of<'p>(plan: &'p Plan, copy: &str) -> Result<&'p str, ApplyError> {
    let clone = plan.clones.iter().find(|clone| clone.name == copy);
    clone
        .map(|clone| clone.original.as_str())
        .ok_or_else(|| ApplyError::NoSuchFunction { name: copy.to_owned() })
}

/// The instructions that a plan names.
#[derive(Default)]
struct Places<'m> {
    found: FxHashMap<Place, Value<'m>>,
    /// In copies, by the copy's name.
    copied: FxHashMap<(String, u32), Value<'m>>,
}

impl<'m> Places<'m> {
    fn find(&mut self, module: &'m Module, place: &Place) -> Result<(), ApplyError> {
        let found = ir::find(module, place).ok_or_else(|| ApplyError::NoSuchPlace { place: place.clone() })?;
        self.found.insert(place.clone(), found);
        Ok(())
    }

    fn find_all(&mut self, module: &'m Module, places: &[Place]) -> Result<(), ApplyError> {
        places.iter().try_for_each(|place| self.find(module, place))
    }

    fn find_in_copy(&mut self, module: &'m Module, clone: &PersistentFunction) -> Result<(), ApplyError> {
        let copy = module.function(&clone.name).ok_or_else(|| ApplyError::NoSuchFunction {
            name: clone.name.clone(),
        })?;
        for (index, instruction) in copy.code().enumerate() {
            self.copied.insert((clone.name.clone(), index as u32), instruction);
        }
        Ok(())
    }

    fn get(&self, place: &Place) -> Result<Value<'m>, ApplyError> {
        let found = self.found.get(place).copied();
        found.ok_or_else(|| ApplyError::NoSuchPlace { place: place.clone() })
    }

    /// The copy of an instruction of the original.
    fn copied(&self, copy: &str, place: &Place) -> Result<Value<'m>, ApplyError> {
        let found = self.copied.get(&(copy.to_owned(), place.instruction)).copied();
        found.ok_or_else(|| ApplyError::NoSuchPlace { place: place.clone() })
    }

    fn get_in(&self, copy: &str, places: &[Place]) -> Result<Vec<Value<'m>>, ApplyError> {
        places.iter().map(|place| self.copied(copy, place)).collect()
    }
}
