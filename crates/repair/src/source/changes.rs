//! The changes that a fix makes, in all files; and those of all fixes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::changed::Cause;
use super::edits::Edits;
use super::idiom::Include;
use super::refusal::Refusal;
use super::variants::{Variant, VariantKey};

#[derive(Clone, Debug, Default)]
pub(crate) struct Changes {
    pub files: BTreeMap<PathBuf, Edits>,
    pub variants: BTreeMap<VariantKey, Variant>,
    /// Persistent functions of the plan that the variants stand for.
    pub cloned: BTreeSet<String>,
    /// Of variants: declarations, by the file and the end of that of the original.
    pub declarations: BTreeMap<(PathBuf, usize), Declaration>,
}

/// What goes on the line behind a declaration.
#[derive(Clone, Debug)]
pub(crate) struct Declaration {
    /// Where that of the original starts.
    pub start: usize,
    pub text: String,
    pub causes: BTreeSet<Cause>,
}

impl Changes {
    /// All or nothing.
    pub(crate) fn merge(&mut self, other: &Changes) -> Result<(), Refusal> {
        let mut files = self.files.clone();
        for (path, edits) in &other.files {
            files.entry(path.clone()).or_default().merge(edits)?;
        }
        let mut variants = self.variants.clone();
        for (key, variant) in &other.variants {
            match variants.get_mut(key) {
                Some(mine) => mine.edits.merge(&variant.edits)?,
                None => {
                    variants.insert(key.clone(), variant.clone());
                }
            }
        }
        self.files = files;
        self.variants = variants;
        self.cloned.extend(other.cloned.iter().cloned());
        for (at, declaration) in &other.declarations {
            let own = self
                .declarations
                .entry(at.clone())
                .or_insert_with(|| declaration.clone());
            own.causes.extend(&declaration.causes);
        }
        Ok(())
    }

    /// Says of all changes what they are made for.
    pub(crate) fn because(mut self, cause: Cause) -> Changes {
        let variants = self.variants.values_mut().map(|variant| &mut variant.edits);
        for edits in self.files.values_mut().chain(variants) {
            edits.because(cause);
        }
        for declaration in self.declarations.values_mut() {
            declaration.causes.insert(cause);
        }
        self
    }

    /// What the changes of a file are made for.
    pub(crate) fn causes(&self, path: &Path) -> BTreeSet<Cause> {
        self.edits(path).flat_map(Edits::causes).collect()
    }

    /// Of a file and of the variants in it.
    fn edits(&self, path: &Path) -> impl Iterator<Item = &Edits> {
        let variants = self.variants.iter().filter(move |((of, _), _)| of == path);
        let variants = variants.map(|(_, variant)| &variant.edits);
        self.files.get(path).into_iter().chain(variants)
    }

    pub(crate) fn edit(&mut self, path: &Path, edits: &Edits) -> Result<(), Refusal> {
        self.files.entry(path.to_path_buf()).or_default().merge(edits)
    }

    /// What the text of a file will call has to be declared there.
    pub(crate) fn includes(&self, path: &Path) -> BTreeSet<Include> {
        self.edits(path).flat_map(Edits::includes).collect()
    }

    /// The functions that the insertions call, for people to read.
    pub(crate) fn idiom(&self) -> String {
        let edits = self
            .files
            .values()
            .chain(self.variants.values().map(|variant| &variant.edits));
        let names: BTreeSet<String> = edits.flat_map(Edits::functions).collect();
        names.into_iter().collect::<Vec<_>>().join(", ")
    }

    /// The files that change, whatever changes in them.
    pub(crate) fn paths(&self) -> BTreeSet<&PathBuf> {
        let variants = self.variants.keys().map(|(path, _)| path);
        let declarations = self.declarations.keys().map(|(path, _)| path);
        self.files.keys().chain(variants).chain(declarations).collect()
    }
}
