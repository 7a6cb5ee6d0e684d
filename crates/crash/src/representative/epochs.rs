//! From the persistence graph to update behaviours: type, instance and epoch subgraphs (dissertation §4.4.3), and our joint
//! behaviours of two instances.
//!
//! One pass. An update joins the open epoch of each object that it is about ([`Subjects`]), or ends that epoch and begins the
//! next, by Squint's two criteria:
//!
//! 1. all earlier updates of the object are persistent, and this one updates a field again that the epoch has updated;
//! 2. some update of anything else was issued after one of the epoch's updates was persistent, and is persistent by now: it
//!    lies between that one and this.
//!
//! All edges between the nodes of an epoch are known when the last of them is issued, so an ended epoch has its final shape.
//! Shapes are compared by hash: of each shape the first epoch is kept, and the first from each further set of source
//! positions. The rest is counted. Memory is for open epochs, recent ones and distinct shapes.
//!
//! Deviations. An epoch ends after [`MAX_NODES`] updates; of an object whose epochs do that (a call that copies a table, an
//! object that is never flushed), the first and the last are kept and those between are not behaviours. The second criterion looks back
//! [`RECENT`] updates.
//!
//! **Joint behaviours**, ours: two epochs of different objects, if one has an update that is not ordered with one of
//! the other, or stores the address or file offset of a line that the other updated (or the other way round, which is how
//! a pointer to what is not there yet looks). They are compared by both types, the fields, and the edges between
//! them. An epoch joins at most [`MAX_PARTNERS`], and only recent ones; none that the epoch of an enclosing object has both of.

use std::collections::VecDeque;

use crashproof_model::{LINE, LineAddress};
use crashproof_trace::{Event, EventKind, Tables};
use rustc_hash::FxHashMap;

use super::order::{NodeId, Update, Watch};
use super::shape::{NEVER, Node, ShapeHasher};
use super::subject::{Instance, Subject, Subjects, TypeKey};

/// Updates in an epoch.
pub(crate) const MAX_NODES: usize = 512;
/// Updates that the second criterion looks back at.
const RECENT: usize = 512;
/// Ended epochs that can still become part of a joint behaviour.
const RECENT_EPOCHS: usize = 1024;
/// Epochs with updates that are not persistent, which a new update may be unordered with.
const MAX_ACTIVE: usize = 16;
/// Joint behaviours that one epoch begins.
const MAX_PARTNERS: usize = 16;
/// Members of one shape that differ in their source positions.
const MAX_MEMBERS: usize = 64;
/// A bit that no type has.
const NEXT_ROUND: TypeKey = 1 << 31;
/// Smaller values are counts, not file offsets.
const LEAST_OFFSET: u64 = LINE;
/// Lists of nodes of epochs that are gone, for those to come.
const MAX_SPARE: usize = 64;
/// Open epochs are looked through for ended ones every so many updates.
const SWEEP: u64 = 1 << 13;

pub(crate) type EpochId = u64;

pub(crate) struct Epoch {
    pub instance: Instance,
    pub nodes: Vec<Node>,
    /// Nodes that are not persistent.
    uncertain: u32,
    /// How many updates had been issued in all when one of its own was first persistent.
    persistent_from: Option<u64>,
    /// Nodes of which it is the innermost object.
    innermost: u32,
    /// Epochs of the enclosing objects when it began.
    within: Vec<EpochId>,
    partners: Vec<EpochId>,
    open: bool,
    /// It is the next one of an object whose last one it ended, and the program has said nothing in between: of two calls in a
    /// row from one place, which look like one, that tells the next round of a loop in the first from the second.
    pub continues: bool,
    /// Part of a behaviour that is kept.
    kept: bool,
}

impl Epoch {
    pub(super) fn of(instance: Instance, nodes: Vec<Node>) -> Epoch {
        Epoch {
            instance,
            nodes,
            uncertain: 0,
            persistent_from: None,
            innermost: 0,
            within: Vec::new(),
            partners: Vec::new(),
            open: true,
            continues: false,
            kept: false,
        }
    }

    pub(super) fn ty(&self) -> TypeKey {
        self.instance.0
    }

    /// It has updated the field.
    fn has(&self, field: u64) -> bool {
        self.nodes.iter().rev().any(|node| node.field == field)
    }

    /// What it is compared by if it is a behaviour by itself: the next round of a loop in a call is not like the first, however
    /// alike their stores are.
    pub(super) fn kind(&self) -> TypeKey {
        let is_call = self.nodes.first().is_some_and(|node| node.call.is_some());
        self.ty() | if is_call && self.continues { NEXT_ROUND } else { 0 }
    }
}

/// A behaviour that is kept: one epoch, or two.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub epochs: Vec<EpochId>,
    /// Source positions, sorted.
    pub sites: Vec<u64>,
}

/// Behaviours of one shape.
pub(crate) struct Class {
    pub count: u64,
    pub members: Vec<Member>,
}

#[derive(Default)]
struct Object {
    open: Option<EpochId>,
    uncertain: u32,
    /// Epochs that ended because they were large, in a row.
    overflows: u32,
}

struct RecentUpdate {
    id: NodeId,
    persistent: bool,
    subjects: Vec<Instance>,
}

struct Mapped {
    file: u32,
    address: u64,
    offset: u64,
    len: u64,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub updates: u64,
    /// Of one object.
    pub single: u64,
    pub joint: u64,
    /// Left out because they have too many updates.
    pub large: u64,
}

/// The epoch that a node belongs to, its number there, and whose epoch that is.
type Membership = (EpochId, u32, Instance);

pub(crate) struct Epochs<'s> {
    subjects: &'s mut dyn Subjects,
    joins: bool,
    objects: FxHashMap<Instance, Object>,
    pub epochs: FxHashMap<EpochId, Epoch>,
    next_epoch: EpochId,
    /// Nodes that are not persistent: what they belong to.
    uncertain: FxHashMap<NodeId, Box<[Membership]>>,
    recent: VecDeque<RecentUpdate>,
    /// The node after the last one issued.
    next_node: u64,
    /// Ended epochs that are not dropped yet, oldest first.
    ended: VecDeque<EpochId>,
    /// Epochs with uncertain nodes, those with the latest last.
    active: VecDeque<EpochId>,
    /// Some of them may have none any more.
    settled: bool,
    /// The last epoch that stored to a line, and the last that stored a pointer to it.
    owners: FxHashMap<LineAddress, EpochId>,
    pointers: FxHashMap<LineAddress, EpochId>,
    mappings: Vec<Mapped>,
    /// The event by which the program last output something.
    last_output: u64,
    classes: FxHashMap<u128, usize>,
    pub found: Vec<Class>,
    /// Crash points, in order.
    pub points: Vec<u64>,
    pub counts: Counts,
    about: Vec<Subject>,
    ids: Vec<EpochId>,
    partners: Vec<EpochId>,
    over: Vec<Instance>,
    hasher: ShapeHasher,
    sites: Vec<u64>,
    spare: Vec<Vec<Node>>,
    /// Events of every epoch that ended.
    #[cfg(test)]
    pub seen: Vec<(Instance, Vec<u64>)>,
}

impl<'s> Epochs<'s> {
    pub(super) fn new(subjects: &'s mut dyn Subjects, joins: bool) -> Epochs<'s> {
        Epochs {
            subjects,
            joins,
            objects: FxHashMap::default(),
            epochs: FxHashMap::default(),
            next_epoch: 0,
            uncertain: FxHashMap::default(),
            recent: VecDeque::new(),
            next_node: 0,
            ended: VecDeque::new(),
            active: VecDeque::new(),
            settled: false,
            owners: FxHashMap::default(),
            pointers: FxHashMap::default(),
            mappings: Vec::new(),
            last_output: 0,
            classes: FxHashMap::default(),
            found: Vec::new(),
            points: Vec::new(),
            counts: Counts::default(),
            about: Vec::new(),
            ids: Vec::new(),
            partners: Vec::new(),
            over: Vec::new(),
            hasher: ShapeHasher::default(),
            sites: Vec::new(),
            spare: Vec::new(),
            #[cfg(test)]
            seen: Vec::new(),
        }
    }

    /// Ends what is open and drops what is not kept.
    pub(super) fn finish(&mut self) {
        let mut open: Vec<EpochId> = self.objects.values().filter_map(|object| object.open).collect();
        open.sort_unstable();
        for id in open {
            self.end(id);
        }
        self.epochs.retain(|_, epoch| epoch.kept);
    }

    /// Whether an update that is not of the object lies between one that is persistent since `from` and now.
    fn lies_between(&self, from: u64, instance: Instance) -> bool {
        let since = self.recent.iter().rev().take_while(|update| update.id.0 >= from);
        since
            .into_iter()
            .any(|update| update.persistent && !update.subjects.contains(&instance))
    }

    fn ends_before(&self, epoch: &Epoch, object: &Object, field: u64) -> bool {
        object.uncertain == 0 && epoch.has(field)
            || epoch
                .persistent_from
                .is_some_and(|from| self.lies_between(from, epoch.instance))
    }

    /// The epoch that the update joins.
    fn epoch_for(&mut self, subject: &Subject) -> EpochId {
        let object = self.objects.entry(subject.instance).or_default();
        let last = object.open;
        if let Some(id) = last {
            let object = &self.objects[&subject.instance];
            let epoch = &self.epochs[&id];
            let large = epoch.nodes.len() >= MAX_NODES;
            if !large && !self.ends_before(epoch, object, subject.field) {
                return id;
            }
            self.end(id);
            if large && let Some(object) = self.objects.get_mut(&subject.instance) {
                object.overflows += 1;
            }
        }
        let id = self.next_epoch;
        self.next_epoch += 1;
        let mut nodes = self.spare.pop().unwrap_or_default();
        nodes.clear();
        let mut epoch = Epoch::of(subject.instance, nodes);
        epoch.continues = last.is_some_and(|last| self.ended_after(last, self.last_output));
        self.epochs.insert(id, epoch);
        self.objects.entry(subject.instance).or_default().open = Some(id);
        id
    }

    /// Whether the epoch's last update was issued after the event.
    fn ended_after(&self, id: EpochId, seq: u64) -> bool {
        let last = self.epochs.get(&id).and_then(|epoch| epoch.nodes.last());
        last.is_some_and(|node| node.seq > seq)
    }

    fn end(&mut self, id: EpochId) {
        let Some(epoch) = self.epochs.get_mut(&id) else { return };
        epoch.open = false;
        #[cfg(test)]
        self.seen
            .push((epoch.instance, epoch.nodes.iter().map(|node| node.seq).collect()));
        let instance = epoch.instance;
        let partners = std::mem::take(&mut epoch.partners);
        let large = epoch.nodes.len() >= MAX_NODES;
        let own = epoch.innermost as usize * 2 > epoch.nodes.len();
        let mut overflows = 0;
        if let Some(object) = self.objects.get_mut(&instance) {
            object.open = None;
            overflows = object.overflows;
            if object.uncertain == 0 && !large {
                self.objects.remove(&instance);
            }
        }
        // Of a large object the first part, and the last.
        if large && (overflows > 0 || !own) || overflows > 0 && !own {
            self.counts.large += 1;
            self.forget(id);
            return;
        }
        self.counts.single += 1;
        self.classify(&[id]);
        for partner in partners {
            match self.epochs.get_mut(&partner) {
                Some(other) if other.open => other.partners.push(id),
                Some(_) => {
                    self.counts.joint += 1;
                    self.classify(&[partner.min(id), partner.max(id)]);
                }
                None => {}
            }
        }
        self.ended.push_back(id);
        if self.ended.len() > RECENT_EPOCHS
            && let Some(old) = self.ended.pop_front()
            && self.epochs.get(&old).is_some_and(|epoch| !epoch.kept)
        {
            self.forget(old);
        }
    }

    fn forget(&mut self, id: EpochId) {
        self.settled = true;
        if let Some(epoch) = self.epochs.remove(&id)
            && self.spare.len() < MAX_SPARE
        {
            self.spare.push(epoch.nodes);
        }
    }

    /// Counts a behaviour, and keeps it if there is none like it.
    fn classify(&mut self, ids: &[EpochId]) {
        let mut parts: [(TypeKey, &[Node]); 2] = [(0, &[]); 2];
        let mut count = 0;
        for part in parts_of(ids, &self.epochs).take(2) {
            parts[count] = part;
            count += 1;
        }
        let parts = &parts[..count];
        let hash = self.hasher.hash(parts);
        let number = *self.classes.entry(hash).or_insert_with(|| {
            self.found.push(Class {
                count: 0,
                members: Vec::new(),
            });
            self.found.len() - 1
        });
        let class = &mut self.found[number];
        class.count += 1;
        if class.members.len() == MAX_MEMBERS {
            return;
        }
        self.sites.clear();
        self.sites
            .extend(parts.iter().flat_map(|part| part.1).map(|node| node.site));
        self.sites.sort_unstable();
        self.sites.dedup();
        if class.members.iter().any(|member| member.sites == self.sites) {
            return;
        }
        class.members.push(Member {
            epochs: ids.to_vec(),
            sites: self.sites.clone(),
        });
        for id in ids {
            if let Some(epoch) = self.epochs.get_mut(id) {
                epoch.kept = true;
            }
        }
    }

    /// Notes epochs that the update's epoch is unordered with or linked to.
    fn join(&mut self, update: &Update<'_>, id: EpochId, mine: &[EpochId]) {
        let Some(line) = update.line else { return };
        let mut partners = std::mem::take(&mut self.partners);
        partners.clear();
        if std::mem::take(&mut self.settled) {
            let epochs = &self.epochs;
            self.active
                .retain(|other| epochs.get(other).is_some_and(|epoch| epoch.uncertain > 0));
        }
        // Most updates come after one of their epoch that has found the same partners.
        let known = self.epochs.get(&id).map_or(&[][..], |epoch| &epoch.partners[..]);
        let is_full = known.len() >= MAX_PARTNERS;
        let may_be_new = |other: EpochId| !is_full && other != id && !known.contains(&other);
        for &other in self.active.iter().rev().filter(|&&other| may_be_new(other)) {
            let unordered = |node: &Node| {
                node.persistent_at == NEVER
                    && !(node.in_line_order && update.in_line_order && node.line == Some(line))
                    && update.after.binary_search(&node.id).is_err()
            };
            // The latest are the likeliest.
            if self.epochs[&other].nodes.iter().rev().any(unordered) {
                partners.push(other);
            }
        }
        partners.extend(self.pointers.get(&line).copied().filter(|&other| may_be_new(other)));
        for word in words(update) {
            let Some(target) = self.target(update.at.file.0, word) else {
                continue;
            };
            self.pointers.insert(target, id);
            partners.extend(self.owners.get(&target).copied().filter(|&other| may_be_new(other)));
        }
        self.owners.insert(line, id);
        partners.retain(|other| self.may_join(id, *other, mine));
        if let Some(epoch) = self.epochs.get_mut(&id) {
            for &other in &partners {
                if epoch.partners.len() < MAX_PARTNERS && !epoch.partners.contains(&other) {
                    epoch.partners.push(other);
                }
            }
        }
        self.partners = partners;
        if self.active.back() != Some(&id) {
            self.active.retain(|&other| other != id);
            self.active.push_back(id);
            if self.active.len() > MAX_ACTIVE {
                self.active.pop_front();
            }
        }
    }

    /// Not if it is known, or an enclosing object's epoch has them both.
    fn may_join(&self, id: EpochId, other: EpochId, mine: &[EpochId]) -> bool {
        let Some(epoch) = self.epochs.get(&other) else {
            return false;
        };
        let is_large = |id: &EpochId| {
            let object = self.epochs.get(id).and_then(|epoch| self.objects.get(&epoch.instance));
            object.is_some_and(|object| object.overflows > 0)
        };
        !epoch.partners.contains(&id)
            && !mine.contains(&other)
            && !mine
                .iter()
                .any(|outer| epoch.within.contains(outer) && !is_large(outer))
    }

    /// The line that a stored value is the address or the file offset of.
    fn target(&self, file: u32, value: u64) -> Option<LineAddress> {
        let mapped = self
            .mappings
            .iter()
            .find(|m| (m.address..m.address.saturating_add(m.len)).contains(&value));
        let at = match mapped {
            Some(m) => (m.file, m.offset + (value - m.address)),
            None if value >= LEAST_OFFSET => (file, value),
            None => return None,
        };
        let line = LineAddress {
            file: at.0,
            line: at.1 / LINE,
        };
        (mapped.is_some() || self.owners.contains_key(&line)).then_some(line)
    }

    /// Ends epochs that the next update would end anyway.
    fn sweep(&mut self) {
        let ends = |object: &Object| {
            let id = object.open?;
            let epoch = self.epochs.get(&id)?;
            let from = epoch.persistent_from?;
            self.lies_between(from, epoch.instance).then_some(id)
        };
        let mut over: Vec<EpochId> = self.objects.values().filter_map(ends).collect();
        over.sort_unstable();
        for id in over {
            self.end(id);
        }
    }
}

/// The epochs of a behaviour, as [`Shape`](super::shape::Shape) compares them.
pub(crate) fn parts<'e>(ids: &[EpochId], epochs: &'e FxHashMap<EpochId, Epoch>) -> Vec<(TypeKey, &'e [Node])> {
    parts_of(ids, epochs).collect()
}

fn parts_of<'e>(ids: &[EpochId], epochs: &'e FxHashMap<EpochId, Epoch>) -> impl Iterator<Item = (TypeKey, &'e [Node])> {
    let is_single = ids.len() == 1;
    ids.iter()
        .filter_map(|id| epochs.get(id))
        .map(move |epoch| (if is_single { epoch.kind() } else { epoch.ty() }, &epoch.nodes[..]))
}

/// Words that may be pointers.
fn words<'e>(update: &Update<'e>) -> impl Iterator<Item = u64> + use<'e> {
    let skip = (8 - update.at.offset % 8) as usize % 8;
    let data = update.data.get(skip..).unwrap_or_default();
    data.as_chunks()
        .0
        .iter()
        .map(|word: &[u8; 8]| u64::from_le_bytes(*word))
}

impl Watch for Epochs<'_> {
    fn event(&mut self, event: &Event<'_>, tables: &Tables) {
        if let EventKind::Map {
            file,
            address,
            offset,
            len,
            ..
        } = event.kind
        {
            self.mappings.retain(|m| (m.file, m.address) != (file.0, address));
            self.mappings.push(Mapped {
                file: file.0,
                address,
                offset,
                len,
            });
        }
        if matches!(event.kind, EventKind::Output { .. }) {
            self.last_output = event.seq;
        }
        let mut over = std::mem::take(&mut self.over);
        self.subjects.event(event, tables, &mut over);
        for instance in over.drain(..) {
            if let Some(id) = self.objects.get(&instance).and_then(|object| object.open) {
                self.end(id);
            }
            self.objects.remove(&instance);
        }
        self.over = over;
    }

    fn issued(&mut self, update: &Update<'_>, tables: &Tables) {
        let mut about = std::mem::take(&mut self.about);
        about.clear();
        self.subjects.of(update, tables, &mut about);
        let site = self.subjects.site(update, tables);
        self.counts.updates += 1;
        self.next_node = update.id.0 + 1;
        let mut ids = std::mem::take(&mut self.ids);
        ids.clear();
        ids.extend(about.iter().map(|subject| self.epoch_for(subject)));
        let mut places = Vec::with_capacity(ids.len());
        for (level, (subject, &id)) in about.iter().zip(&ids).enumerate() {
            let Some(epoch) = self.epochs.get_mut(&id) else {
                continue;
            };
            if epoch.nodes.is_empty() {
                epoch.within = ids[level + 1..].to_vec();
            }
            places.push((id, epoch.nodes.len() as u32, subject.instance));
            epoch.uncertain += 1;
            epoch.innermost += (level == 0) as u32;
            epoch.nodes.push(Node {
                seq: update.seq,
                persistent_at: NEVER,
                at: update.at,
                len: update.data.len() as u32,
                line: update.line,
                in_line_order: update.in_line_order,
                id: update.id,
                after: update.after.into(),
                field: subject.field,
                call: subject.call,
                stack: update.stack,
                site,
            });
            self.objects.entry(subject.instance).or_default().uncertain += 1;
        }
        self.uncertain.insert(update.id, places.into());
        let oldest = match self.recent.len() {
            RECENT.. => self.recent.pop_front(),
            _ => None,
        };
        let mut subjects = oldest.map_or_else(Vec::new, |oldest| oldest.subjects);
        subjects.clear();
        subjects.extend(about.iter().map(|subject| subject.instance));
        self.recent.push_back(RecentUpdate {
            id: update.id,
            persistent: false,
            subjects,
        });
        if let Some(&innermost) = ids.first().filter(|_| self.joins) {
            self.join(update, innermost, &ids);
        }
        self.about = about;
        self.ids = ids;
        if self.counts.updates.is_multiple_of(SWEEP) {
            self.sweep();
        }
    }

    fn persistent(&mut self, node: NodeId, seq: u64) {
        let Some(places) = self.uncertain.remove(&node) else {
            return;
        };
        for &(id, index, instance) in &places {
            if let Some(object) = self.objects.get_mut(&instance) {
                object.uncertain = object.uncertain.saturating_sub(1);
            }
            if let Some(epoch) = self.epochs.get_mut(&id) {
                epoch.nodes[index as usize].persistent_at = seq;
                epoch.uncertain -= 1;
                self.settled |= epoch.uncertain == 0;
                epoch.persistent_from.get_or_insert(self.next_node);
            }
        }
        let first = self.recent.front().map_or(0, |update| update.id.0);
        if let Some(update) = node
            .0
            .checked_sub(first)
            .and_then(|at| self.recent.get_mut(at as usize))
        {
            update.persistent = true;
        }
    }

    fn point(&mut self, seq: u64) {
        if self.points.last() != Some(&seq) {
            self.points.push(seq);
        }
    }
}
