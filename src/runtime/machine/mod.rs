//! The machine that pods run on: carries out effects, and sends reports.
//!
//! Knows: where shims are and how to reach them. A few threads hold the connections, each pod always with the same one.
//! Never: waits for a shim in the caller's thread, and never decides that something should run.
//! Start reading at [`Machine::open`], then [`shard`].

mod facts;
mod link_end;
mod removal;
mod shard;
mod shim_link;
mod zygote_handle;

use super::https::trust::LinkCertificates;
use super::network::gateway::{GatewayCommand, link::GatewayLink};
use super::network::publisher::{NetworkPublisher, PublishCommand};
use super::probe::ProbeRoute;
use super::token_signer::{TokenSource, VolumeSigner};
use super::wire::{ControlGroup, ShimRecord, SoftBounds, VERSION};
use super::{build, descriptors, file_watch, folder, image, limits, low_ports, probe, reap_dead_shim, view};
use crate::object::{Str, Time};
use crate::world::facts::FilePatterns;
use crate::world::limits::Limits;
use crate::world::policy::Cidr;
use crate::world::start::StartImage;
use crate::world::{Effect, PodFacts, Report};
use anyhow::{Context as _, Result};
use link_end::OwnLinkEnd;
pub use link_end::choose_link_address;
use removal::Remover;
use shard::{LinkBudget, Shard, ShardCommand, ShardInbox};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time to wait for shims that do not answer.
const SHIM_ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Threads that hold connections: starting a shim keeps one busy for about a millisecond.
const SHARDS: usize = 2;

/// Executes effects: the machine, or its simulation.
pub trait Host {
    /// Orders an effect; returns at once. Repeating an effect does no harm.
    fn carry_out(&mut self, now: Time, effect: &Effect);
}

/// State shared by all threads of a machine.
struct MachineContext {
    state: PathBuf,
    epoch: u64,
    /// The program of shims: this binary.
    program: PathBuf,
    environment: image::Environment,
    builds: build::Builds,
    remover: Remover,
    /// The control groups that enforce limits, or the reason why there are none.
    limits: Result<limits::CgroupTree, String>,
    report: Arc<dyn Fn(Report) + Send + Sync>,
}

impl MachineContext {
    /// The control groups that a container needs.
    fn groups(&self, pod: &str, container: &str, limits: &Limits) -> Vec<ControlGroup> {
        self.limits.as_ref().map_or(Vec::new(), |tree| tree.groups(pod, container, limits))
    }

    /// Builds an image's program, or waits for the build that runs.
    fn build(self: &Arc<MachineContext>, image: &StartImage, waiting: build::BuildWait) {
        let context = self.clone();
        self.builds.order(&self.state, &self.environment, image, waiting, move |report| (context.report)(report));
    }

    /// Returns the limits that the shim must watch.
    fn watched(&self, limits: &Limits) -> SoftBounds {
        self.limits.as_ref().map_or_else(|_| limits::watched(limits), |tree| tree.watched(limits))
    }
}

/// Shims that are asked for their state.
pub struct AdoptedShims {
    records: Receiver<(Str, ShimRecord)>,
    count: usize,
}

impl AdoptedShims {
    /// Waits for the answers, which the shims send after their reports. A shim that is stopped or busy may send none.
    pub fn wait(self) -> HashMap<Str, PodFacts> {
        let deadline = Instant::now() + SHIM_ANSWER_TIMEOUT;
        let next = || self.records.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok();
        let answers = std::iter::repeat_with(next).take(self.count).map_while(|answer| answer);
        answers.map(|(uid, record)| (uid, facts::pod(&record))).collect()
    }
}

/// The real machine.
pub struct Machine {
    context: Arc<MachineContext>,
    inboxes: Vec<Arc<ShardInbox>>,
    threads: Vec<JoinHandle<()>>,
    probes: probe::ProbePool,
    /// Measures the disk usage of pods.
    storage_watcher: limits::storage_watch::StorageWatcher,
    /// Publishes network configuration.
    network_publisher: NetworkPublisher,
    /// Whether all network configuration was ordered once.
    is_settled: bool,
    /// Whether DNS queries are answered.
    answers: bool,
    /// Watches the files of images; `None` until there are any.
    watching: Option<file_watch::FileWatch>,
    /// Live shims that the inventory knows by their records alone.
    undialed: Vec<Str>,
    /// Control groups with processes of pods that this cluster does not know.
    unknown_cgroups: Vec<PathBuf>,
    /// Signs the tokens in volumes.
    volume_signer: VolumeSigner,
    /// This machine's end of the links to other machines.
    link_end: OwnLinkEnd,
}

impl Machine {
    /// Takes the state folder for a leader of this epoch. Ask for the [`Machine::inventory`] before ordering anything.
    pub fn open(state: &Path, epoch: u64, report: Box<dyn Fn(Report) + Send + Sync>) -> Result<Machine> {
        Machine::open_with(state, epoch, Path::new(super::THIS), image::Environment::inherited(), report)
    }

    /// Same as [`Machine::open`], with another program for the shims and another environment for all containers.
    pub fn open_with(
        state: &Path,
        epoch: u64,
        program: &Path,
        environment: image::Environment,
        report: Box<dyn Fn(Report) + Send + Sync>,
    ) -> Result<Machine> {
        let state = folder::prepare(state)?;
        let last = folder::read_epoch(&state);
        anyhow::ensure!(epoch >= last, "epoch {epoch} is outdated: epoch {last} leads in {}", state.display());
        folder::write_epoch(&state, epoch).with_context(|| format!("cannot write in {}", state.display()))?;
        let limits = limits::CgroupTree::find(&state);
        let report: Arc<dyn Fn(Report) + Send + Sync> = report.into();
        let report_failure = report.clone();
        let remover = Remover::start(&state, move |why| report_failure(Report::NotDiscarded { why }))
            .context("cannot start the threads that remove folders")?;
        let context = Arc::new(MachineContext {
            limits,
            state,
            epoch,
            program: program.to_owned(),
            environment,
            builds: build::Builds::default(),
            remover,
            report,
        });
        // If the gateway cannot start, names are not answered and pods are not reachable from the rest of the
        // machine.
        let gateway = GatewayLink::start(context.state.clone(), epoch, program.to_owned(), context.report.clone()).ok();
        let network_publisher = NetworkPublisher::new(context.state.clone(), gateway);
        let mut machine = Machine {
            context,
            inboxes: Vec::new(),
            threads: Vec::new(),
            probes: probe::ProbePool::default(),
            storage_watcher: limits::storage_watch::StorageWatcher::default(),
            network_publisher,
            is_settled: false,
            answers: false,
            watching: None,
            undialed: Vec::new(),
            unknown_cgroups: Vec::new(),
            volume_signer: VolumeSigner::default(),
            link_end: OwnLinkEnd::default(),
        };
        let (state, report) = (machine.context.state.clone(), machine.context.report.clone());
        machine.storage_watcher.start(state, move |over| report(over));
        for number in 0..SHARDS {
            let inbox = Arc::new(ShardInbox::new()?);
            let link_budget = LinkBudget::open(&machine.context.state, number, SHARDS)?;
            let shard = Shard::new(machine.context.clone(), inbox.clone(), link_budget)?;
            let thread = std::thread::Builder::new().name(format!("machine-{number}")).spawn(move || shard.run())?;
            machine.inboxes.push(inbox);
            machine.threads.push(thread);
        }
        Ok(machine)
    }

    /// Returns the pods that earlier leaders started, by uid. Kills the processes of dead shims and settles their records. A live shim
    /// counts by its record, which it writes before it reports; [`Machine::connect_to_shims`] then asks it.
    pub fn inventory(&mut self) -> HashMap<Str, PodFacts> {
        let folders = self.folders();
        let mut found = HashMap::new();
        // Taking over the folder of a dead shim needs a descriptor.
        for folders in folders.chunks((descriptors::soft_limit() / 4).max(1)) {
            for (path, record) in reap_dead_shim::take_over(folders, self.context.epoch) {
                found.insert(uid_of(&path), facts::pod(&record));
            }
        }
        let mut unclear = Vec::new();
        for path in &folders {
            let uid = uid_of(path);
            if found.contains_key(&uid) {
                continue;
            }
            let record = folder::read_record(path);
            // A shim that has recorded no container may be starting its first.
            let tells = |record: &ShimRecord| record.version == VERSION && !record.containers.is_empty();
            let is_clear = record.as_ref().is_some_and(tells);
            if is_clear { &mut self.undialed } else { &mut unclear }.push(uid.clone());
            found.insert(uid, record.map(|record| facts::pod(&record)).unwrap_or_default());
        }
        // A shim that does not answer counts by its record.
        found.extend(self.adopt(unclear).wait());
        found.values().for_each(|pod| self.register_address(&pod.ip, &pod.namespace));
        if let Ok(tree) = &self.context.limits {
            self.unknown_cgroups = tree.sweep(|uid| found.contains_key(uid));
        }
        found
    }

    /// Makes the shards connect to these shims. Each shim then reports its state.
    fn adopt(&self, uids: Vec<Str>) -> AdoptedShims {
        let (adopter, records) = channel();
        let count = uids.len();
        for uid in uids {
            self.inbox(&uid).put(ShardCommand::Adopt(uid.clone(), adopter.clone()));
        }
        AdoptedShims { records, count }
    }

    /// Connects to the live shims of the inventory; each reports its state, which may have changed since. Answering keeps a thousand shims
    /// busy for a while, so call this when the inventory is taken in.
    pub fn connect_to_shims(&mut self) -> AdoptedShims {
        let uids = std::mem::take(&mut self.undialed);
        self.adopt(uids)
    }

    /// Returns the control groups with processes of pods that the inventory does not know: a cluster used this path before, and its folder
    /// was removed.
    pub fn unknown_cgroups(&self) -> &[PathBuf] {
        &self.unknown_cgroups
    }

    /// Whether containers can have private views of files on this machine.
    pub fn has_private_files(&self) -> bool {
        view::is_possible(&self.context.program)
    }

    /// Returns why limits of pods are not enforced on this machine; `None` when they are.
    pub fn unenforced_limits_reason(&self) -> Option<Str> {
        let lacks = match &self.context.limits {
            Ok(tree) => tree.lacks(),
            Err(why) => Some(limits::without_groups(why)),
        };
        lacks.map(Str::from)
    }

    /// Returns the user and the group that pods run as by default.
    pub fn runs_as(&self) -> (u32, u32) {
        (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
    }

    /// Returns the lowest port that pods may bind: any for root, else `net.ipv4.ip_unprivileged_port_start`.
    pub fn lowest_port(&self) -> u16 {
        low_ports::lowest_allowed()
    }

    /// Returns the content of the machine's own resolver configuration.
    pub fn resolver(&self) -> Str {
        std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default().into()
    }

    fn folders(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.context.state.join("pods")).into_iter().flatten().flatten();
        let plain = entries.filter(|entry| entry.file_name().to_str().is_some_and(folder::is_plain_name));
        plain.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()).collect()
    }

    /// Starts answering DNS queries in the cluster with the addresses 127.N.0.0/16. To be called once routes are known; repeating it does
    /// no harm. When that is impossible, pods continue to use the machine's own resolver.
    pub fn answer_names(&mut self, network: u8) {
        if !std::mem::replace(&mut self.answers, true) {
            self.publish(GatewayCommand::Answer(network));
        }
    }

    /// Opens node ports at the machine's addresses in these blocks, too. To be called before any network configuration is ordered.
    pub fn open_node_ports(&self, blocks: &[Cidr]) {
        self.publish(GatewayCommand::NodePorts(blocks.to_vec()));
    }

    /// Takes the tokens of pods from this source. To be called before any container is started.
    pub fn take_tokens_from(&mut self, source: TokenSource) {
        self.volume_signer = VolumeSigner::new(source);
    }

    /// Uses these certificates for the links to other machines.
    pub fn set_link_certificates(&mut self, certificates: LinkCertificates) {
        self.link_end.set_certificates(certificates, &self.network_publisher);
    }

    fn publish(&self, command: GatewayCommand) {
        self.network_publisher.order(PublishCommand::Gateway(command));
    }

    /// Drops network configuration of an earlier control plane, after this one has ordered all of its own.
    pub fn drop_stale_network(&mut self) {
        if !std::mem::replace(&mut self.is_settled, true) {
            self.network_publisher.order(PublishCommand::Settle);
        }
    }

    /// Registers a pod's address, which identifies the client of a DNS query.
    fn register_address(&self, ip: &str, namespace: &Str) {
        if let Ok(address) = ip.parse() {
            self.publish(GatewayCommand::Pod(address, namespace.clone()));
        }
    }

    /// Watches an image's files. Where watching is impossible, the pods of the image wait and report it.
    fn watch(&mut self, image: &Str, files: &FilePatterns) {
        if self.watching.is_none() {
            let context = self.context.clone();
            self.watching = file_watch::FileWatch::start(move |report| (context.report)(report)).ok();
        }
        self.watching.iter().for_each(|watching| watching.watch(image, files));
    }

    fn inbox(&self, uid: &str) -> &ShardInbox {
        let sum = uid.bytes().fold(0usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        &self.inboxes[sum % self.inboxes.len()]
    }
}

fn uid_of(path: &Path) -> Str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default().into()
}

impl Host for Machine {
    fn carry_out(&mut self, _now: Time, effect: &Effect) {
        let uid = match effect {
            Effect::Start(start) => {
                let mut signed = start.clone();
                signed.files.volumes =
                    self.volume_signer.sign_volumes(&start.files.volumes).unwrap_or(signed.files.volumes);
                self.inbox(&start.pod_uid).put(ShardCommand::Effect(Effect::Start(signed)));
                return self.register_address(&start.ip, &start.namespace);
            }
            Effect::Refresh { volumes, .. } if volumes.is_empty() => return,
            Effect::Refresh { pod_uid, volumes, .. } => {
                let volumes = self.volume_signer.sign_volumes(volumes).unwrap_or_else(|| volumes.clone());
                let signed = Effect::Refresh { pod_uid: pod_uid.clone(), volumes, missing: Vec::new() };
                return self.inbox(pod_uid).put(ShardCommand::Effect(signed));
            }
            // One thread measures all pods, because it needs no shim.
            Effect::WatchStorage { pod_uid, bounds } => {
                return self.storage_watcher.watch(pod_uid.clone(), bounds.clone());
            }
            Effect::Measure { pods } => match pods.first() {
                Some(first) => first,
                None => return,
            },
            Effect::Stop { pod_uid, .. } | Effect::Resize { pod_uid, .. } | Effect::Remove { pod_uid } => pod_uid,
            Effect::Route { service, route } => {
                return self.network_publisher.order(PublishCommand::Route(service.clone(), route.clone()));
            }
            Effect::Expose { pod, ports } => return self.publish(GatewayCommand::Expose(pod.clone(), ports.clone())),
            Effect::SetNetworkPolicy { policy, rules } => {
                return self.network_publisher.order(PublishCommand::NetworkPolicy(policy.clone(), rules.clone()));
            }
            Effect::SetIngress { ingress, ingress_route } => {
                return self.publish(GatewayCommand::Ingress(ingress.clone(), ingress_route.as_deref().cloned()));
            }
            Effect::AcceptLinks(end) => return self.link_end.set_end(end.as_ref(), &self.network_publisher),
            Effect::SetNodeLink { node, link } => {
                return self.publish(GatewayCommand::NodeLink(node.clone(), link.clone()));
            }
            Effect::Watch { image, files } => return self.watch(image, files),
            Effect::Build { image } => {
                let no_wait = build::BuildWait { telling: None, done: Box::new(|_| {}) };
                return self.context.build(image, no_wait);
            }
            Effect::DeleteVolume { volume } => volume,
            Effect::Probe(probe) => match probe::route(probe) {
                ProbeRoute::Clock => return,
                ProbeRoute::Shim(_) => &probe.pod_uid,
                ProbeRoute::Pool(_) => {
                    let context = self.context.clone();
                    return self.probes.run(probe.clone(), move |report| (context.report)(report));
                }
            },
        };
        self.inbox(uid).put(ShardCommand::Effect(effect.clone()));
    }
}

impl Drop for Machine {
    /// Ends the threads. Shims, their pods and the gateway continue.
    fn drop(&mut self) {
        for inbox in &self.inboxes {
            inbox.put(ShardCommand::Quit);
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
