//! The changes that a fix makes, in all files; and those of all fixes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

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
    /// Of variants: what goes on the line behind a declaration, by its file and end; and where that starts.
    pub declarations: BTreeMap<(PathBuf, usize), (usize, String)>,
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
        self.declarations.extend(other.declarations.clone());
        Ok(())
    }

    pub(crate) fn edit(&mut self, path: &Path, edits: &Edits) -> Result<(), Refusal> {
        self.files.entry(path.to_path_buf()).or_default().merge(edits)
    }

    /// What the text of a file will call has to be declared there.
    pub(crate) fn includes(&self, path: &Path) -> BTreeSet<Include> {
        let variants = self.variants.iter().filter(|((of, _), _)| of == path);
        let edits = self
            .files
            .get(path)
            .into_iter()
            .chain(variants.map(|(_, variant)| &variant.edits));
        edits.flat_map(Edits::includes).collect()
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
