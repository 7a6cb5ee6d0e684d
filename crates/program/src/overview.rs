//! What there is in a program, for people to read.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};

use crashproof_sites::{Site, SiteKind, Target, TypeInfo, layout};

use crate::Program;

/// Everything in full; the totals alone with `{:#}`.
pub struct Overview<'a, 'context>(pub &'a Program<'context>);

/// What is known of what the sites write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Typedness {
    pub typed: usize,
    /// The type is found when the caller is known: along the recorded stack.
    pub by_caller: usize,
    /// Written to something that is no struct: an array of numbers, a buffer of bytes.
    pub no_struct: usize,
    /// The pointer comes from where the analysis does not see.
    pub unknown: usize,
    /// The compiler gave the instruction no source position.
    pub no_position: usize,
}

impl Typedness {
    pub fn add(&mut self, site: &Site) {
        let count = match &site.target {
            Target::Place(_) => &mut self.typed,
            Target::Argument(_) => &mut self.by_caller,
            Target::NoStruct => &mut self.no_struct,
            Target::Unknown if site.location.first().is_none_or(|at| at.line == 0) => &mut self.no_position,
            Target::Unknown => &mut self.unknown,
        };
        *count += 1;
    }

    pub fn total(&self) -> usize {
        self.typed + self.by_caller + self.no_struct + self.unknown + self.no_position
    }
}

impl Program<'_> {
    /// Of the sites that write.
    pub fn typedness(&self) -> Typedness {
        let mut typedness = Typedness::default();
        let sites = self
            .files
            .iter()
            .flat_map(|(_, sites)| sites.objects())
            .flat_map(|object| &object.sites);
        for site in sites.filter(|site| !matches!(site.kind, SiteKind::Flush | SiteKind::Fence)) {
            typedness.add(site);
        }
        typedness
    }
}

impl Display for Overview<'_, '_> {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        let program = self.0;
        for (path, sites) in &program.files {
            writeln!(f, "file {}", path.display())?;
            for object in sites.objects() {
                writeln!(
                    f,
                    "  source {} ({} sites, {} calls)",
                    object.source,
                    object.sites.len(),
                    object.calls.len()
                )?;
            }
        }
        let graph = program.call_graph();
        let types: BTreeMap<(&str, u64), &TypeInfo> = program
            .files
            .iter()
            .flat_map(|(_, sites)| sites.objects())
            .flat_map(|object| &object.types)
            .map(|info| ((info.name.as_str(), info.size), info))
            .collect();
        if !f.alternate() {
            for (function, callees) in &graph.direct {
                writeln!(f, "function {function}")?;
                let empty = BTreeSet::new();
                let indirect = graph.indirect.get(function).unwrap_or(&empty);
                callees.iter().try_for_each(|callee| writeln!(f, "  calls {callee}"))?;
                indirect
                    .iter()
                    .try_for_each(|callee| writeln!(f, "  may call {callee}"))?;
            }
            for ((name, size), info) in &types {
                writeln!(f, "type {name} ({size} bytes)")?;
                for field in &info.fields {
                    writeln!(f, "  {} {}+{}", field.name, field.offset, field.size)?;
                }
            }
            self.sites(f)?;
        }
        let typedness = program.typedness();
        let sites: usize = program
            .files
            .iter()
            .flat_map(|(_, s)| s.objects())
            .map(|object| object.sites.len())
            .sum();
        writeln!(
            f,
            "{} functions, {} call edges ({} functions by their address), {} types, {sites} sites",
            graph.direct.len(),
            graph.edges(),
            graph.address_taken.len(),
            types.len()
        )?;
        writeln!(
            f,
            "{} sites write: {} to a known field, {} to what a caller passes, {} to what is no struct, {} through pointers \
             that could not be followed, {} without a source position",
            typedness.total(),
            typedness.typed,
            typedness.by_caller,
            typedness.no_struct,
            typedness.unknown,
            typedness.no_position
        )?;
        program
            .warnings
            .iter()
            .try_for_each(|warning| writeln!(f, "warning: {warning}"))
    }
}

impl Overview<'_, '_> {
    fn sites(&self, f: &mut Formatter) -> fmt::Result {
        let objects = self.0.files.iter().flat_map(|(_, sites)| sites.objects());
        for object in objects {
            for site in &object.sites {
                let position = site.location.first().map_or("?".into(), |at| {
                    format!("{}:{}:{} {}", at.file, at.line, at.column, at.function)
                });
                let what = match site.kind {
                    SiteKind::Store => "store",
                    SiteKind::NontemporalStore => "non-temporal store",
                    SiteKind::Atomic => "atomic",
                    SiteKind::Memory => "copy",
                    SiteKind::Flush => "flush",
                    SiteKind::Fence => "fence",
                    SiteKind::Load => "load",
                };
                writeln!(f, "site {position}: {what}{}", target(&site.target, &object.types))?;
            }
        }
        Ok(())
    }
}

fn target(target: &Target, types: &[TypeInfo]) -> String {
    match target {
        Target::Unknown => String::new(),
        Target::NoStruct => " to no struct".into(),
        Target::Argument(argument) => format!(" to argument {} of {}", argument.index, argument.function),
        Target::Place(place) => {
            let levels = place.levels.iter().filter_map(|level| {
                let name = &types.get(level.ty as usize)?.name;
                let size = level.array.or(place.size).unwrap_or(1);
                Some(format!(
                    "{name}.{}",
                    layout::field_name(types, level.ty, level.offset, size)
                ))
            });
            format!(" to {}", levels.collect::<Vec<_>>().join(" in "))
        }
    }
}
