//! Reads what `crashproof cc` embedded in an executable, a shared library or an object file.

use std::fs::File;
use std::io;
use std::path::{Component, Path, PathBuf};

use crashproof_trace::tracked;
use object::{Object, ObjectSection, ReadCache, ReadRef};
use rustc_hash::FxHashMap;

use crate::section::{self, Content, Defect, Malformed, PcEntry};
use crate::table::{JudgedFunction, ObjectTable, Site, Target};

#[derive(Debug, thiserror::Error)]
pub enum SitesError {
    #[error("cannot read {}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{} is no ELF file that can be read: {reason}", path.display())]
    Elf { path: PathBuf, reason: String },
    #[error("section {section} of {} holds {malformed}; build it again with this version of crashproof cc", path.display())]
    Section {
        path: PathBuf,
        section: &'static str,
        malformed: Malformed,
    },
    #[error(
        "{} was built by crashproof cc, but its sections were removed (llvm-strip does that): types are not known; use GNU \
         strip, or llvm-strip --keep-section=.crashproof.*",
        path.display()
    )]
    Stripped { path: PathBuf },
    #[error("{} has changed since it was recorded (its build id is another): types are not known; record again", path.display())]
    Changed { path: PathBuf },
}

/// The site tables of one linked module.
#[derive(Clone, Debug, Default)]
pub struct ModuleSites {
    objects: Vec<ObjectTable>,
    by_id: FxHashMap<u64, usize>,
    pc: Vec<PcEntry>,
}

/// The bitcode of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bitcode {
    pub object: u64,
    pub bytes: Vec<u8>,
}

impl ModuleSites {
    /// `None`: not built by `crashproof cc`.
    pub fn read(path: &Path) -> Result<Option<ModuleSites>, SitesError> {
        ModuleSites::read_built(path, &[])
    }

    /// The same for a module of a trace: it must be the one that ran, if the trace knows its build id.
    /// That may be the program within the one at `path` ([`crashproof_trace::tracked`]).
    pub fn read_built(path: &Path, build_id: &[u8]) -> Result<Option<ModuleSites>, SitesError> {
        match ModuleSites::read_same(path, build_id) {
            Err(changed @ SitesError::Changed { .. }) => match tracked::extract_built(path, build_id) {
                Some(within) => ModuleSites::read_same(&within, build_id),
                None => Err(changed),
            },
            result => result,
        }
    }

    fn read_same(path: &Path, build_id: &[u8]) -> Result<Option<ModuleSites>, SitesError> {
        with_file(path, |file| {
            if !build_id.is_empty() && !matches!(file.elf.build_id(), Ok(Some(id)) if id == build_id) {
                return Err(SitesError::Changed { path: path.into() });
            }
            let Some(sites) = file.section(section::SITES)? else {
                return file.absent();
            };
            let pc = file.section(section::PC)?.unwrap_or_default();
            ModuleSites::decode(&sites, &pc)
                .map(Some)
                .map_err(|(section, malformed)| SitesError::Section {
                    path: path.into(),
                    section,
                    malformed,
                })
        })
    }

    /// From the bytes of the two sections.
    pub fn decode(sites: &[u8], pc: &[u8]) -> Result<ModuleSites, (&'static str, Malformed)> {
        let mut module = ModuleSites::default();
        for frame in section::frames(Content::Sites, sites) {
            let (offset, frame) = frame.map_err(|malformed| (section::SITES, malformed))?;
            let error = |defect| (section::SITES, Malformed { offset, defect });
            let table: ObjectTable = postcard::from_bytes(frame.payload).map_err(|_| error(Defect::Table))?;
            if table.object != frame.object || !is_consistent(&table) {
                return Err(error(Defect::Index));
            }
            // An object that is linked in twice is the same twice.
            module.by_id.entry(table.object).or_insert(module.objects.len());
            module.objects.push(table);
        }
        module.pc = section::pc_entries(pc).map_err(|malformed| (section::PC, malformed))?;
        Ok(module)
    }

    pub fn objects(&self) -> &[ObjectTable] {
        &self.objects
    }

    /// The site at a code address, relative to the load bias: the last one that begins before it. The index of its object with it.
    pub fn site_at(&self, address: u64) -> Option<(usize, &Site)> {
        let before = self.pc.partition_point(|entry| entry.address <= address);
        let entry = self.pc[..before].last()?;
        let object = *self.by_id.get(&entry.object)?;
        Some((object, self.objects[object].sites.get(entry.site as usize)?))
    }

    /// Sites whose code the linker kept.
    pub fn pc_entries(&self) -> &[PcEntry] {
        &self.pc
    }
}

/// The bitcode of all objects that the file was linked from; empty if it was not built by `crashproof cc`.
pub fn read_bitcode(path: &Path) -> Result<Vec<Bitcode>, SitesError> {
    with_file(path, |file| {
        let Some(section) = file.section(section::BITCODE)? else {
            return file.absent().map(Option::unwrap_or_default);
        };
        section::frames(Content::Bitcode, &section)
            .map(|frame| {
                let (_, frame) = frame.map_err(|malformed| SitesError::Section {
                    path: path.into(),
                    section: section::BITCODE,
                    malformed,
                })?;
                Ok(Bitcode {
                    object: frame.object,
                    bytes: frame.payload.to_vec(),
                })
            })
            .collect()
    })
}

/// The functions of a module of which `crashproof cc` found out whether they are helpers.
#[derive(Clone, Debug, Default)]
pub struct JudgedFunctions {
    /// By linkage name: the file that has it, and whether it is a helper. Functions that only their own object sees may
    /// share a name.
    by_name: FxHashMap<String, Vec<(PathBuf, Option<bool>)>>,
}

impl JudgedFunctions {
    /// Of a module; none if it was not built by `crashproof cc`, or by an earlier version. It is evidence beside other,
    /// so that what cannot be read is no error.
    pub fn read(path: &Path) -> JudgedFunctions {
        let section = with_file(path, |file| file.section(section::HELPERS));
        JudgedFunctions::decode(&section.ok().flatten().unwrap_or_default())
    }

    /// From the bytes of the section. If any of them cannot be read, nothing is known: what is missing might contradict the
    /// rest.
    pub fn decode(section: &[u8]) -> JudgedFunctions {
        JudgedFunctions::try_decode(section).unwrap_or_default()
    }

    fn try_decode(section: &[u8]) -> Option<JudgedFunctions> {
        let mut found = JudgedFunctions::default();
        for frame in section::frames(Content::Helpers, section) {
            let judged: Vec<JudgedFunction> = postcard::from_bytes(frame.ok()?.1.payload).ok()?;
            for one in judged {
                let verdicts = found.by_name.entry(one.function).or_default();
                let verdict = (plain(Path::new(&one.file)), one.is_helper);
                // An inline function is in many objects.
                if !verdicts.contains(&verdict) {
                    verdicts.push(verdict);
                }
            }
        }
        Some(found)
    }

    /// Whether the function of that linkage name in that file is a helper; `None`: not known, or there are several that
    /// differ.
    pub fn is_helper(&self, function: &str, file: &str) -> Option<bool> {
        let file = plain(Path::new(file));
        let verdicts = self.by_name.get(function)?;
        let mut verdicts = verdicts
            .iter()
            .filter(|(path, _)| *path == file)
            .map(|(_, verdict)| *verdict);
        let first = verdicts.next()?;
        first.filter(|_| verdicts.all(|verdict| verdict == first))
    }
}

/// Without `.` and `..`, as far as the text goes.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir if plain.file_name().is_some() => {
                plain.pop();
            }
            component => plain.push(component),
        }
    }
    plain
}

/// Whether every index of the table leads somewhere.
fn is_consistent(table: &ObjectTable) -> bool {
    let types = table.types.len();
    let known = |index: &u32| (*index as usize) < types;
    let is_sound = |target: &Target| match target {
        Target::Place(place) => !place.levels.is_empty() && place.levels.iter().all(|level| known(&level.ty)),
        _ => true,
    };
    let mut fields = table.types.iter().flat_map(|info| &info.fields);
    fields.all(|field| field.ty.iter().chain(&field.points_to).all(known))
        && table.sites.iter().all(|site| is_sound(&site.target))
        && table
            .calls
            .iter()
            .all(|call| call.arguments.iter().all(|(_, target)| is_sound(target)))
}

struct ElfFile<'a, R: ReadRef<'a>> {
    path: &'a Path,
    elf: object::File<'a, R>,
}

fn with_file<T>(
    path: &Path,
    read: impl for<'a> FnOnce(ElfFile<'a, &'a ReadCache<File>>) -> Result<T, SitesError>,
) -> Result<T, SitesError> {
    let io_error = |source| SitesError::File {
        path: path.into(),
        source,
    };
    // A path in a trace may name anything by now; opening a pipe would wait for ever.
    if !path.metadata().map_err(io_error)?.is_file() {
        return Err(io_error(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a regular file",
        )));
    }
    let cache = ReadCache::new(File::open(path).map_err(io_error)?);
    let elf = object::File::parse(&cache).map_err(|error| SitesError::Elf {
        path: path.into(),
        reason: error.to_string(),
    })?;
    read(ElfFile { path, elf })
}

impl<'a, R: ReadRef<'a>> ElfFile<'a, R> {
    /// All sections of that name, in order: `ld -r` may leave several. `None`: there is none.
    fn section(&self, name: &str) -> Result<Option<Vec<u8>>, SitesError> {
        let mut found = None;
        for section in self.elf.sections().filter(|section| section.name() == Ok(name)) {
            let data = section.uncompressed_data().map_err(|error| SitesError::Elf {
                path: self.path.into(),
                reason: format!("section {name}: {error}"),
            })?;
            found.get_or_insert_with(Vec::new).extend_from_slice(&data);
        }
        Ok(found)
    }

    /// Without the sections: not built by `crashproof cc`, unless the note is there.
    fn absent<T>(&self) -> Result<Option<T>, SitesError> {
        if self.elf.section_by_name(section::NOTE).is_some() {
            return Err(SitesError::Stripped { path: self.path.into() });
        }
        Ok(None)
    }
}
