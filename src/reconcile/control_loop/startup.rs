//! The start of a control loop: reads the machine's state, the store and the settings.
//!
//! Knows: the order in which they are read. Never: ticks, or waits for a change. Start reading at [`ControlLoop::start`].

use super::{ControlLoop, MAX_RESERVE_WAIT, WakeUp};
use crate::apiserver::Api;
use crate::kubelet;
use crate::object::{Str, Time};
use crate::reconcile::control_plane::ControlPlane;
use crate::reconcile::disk_reserve::DiskReserve;
use crate::reconcile::leader::Leadership;
use crate::reconcile::machine_setup::{open_machine, shim_program};
use crate::reconcile::retry::retry_until_writable;
use crate::reconcile::settings::ControlSettings;
use crate::reconcile::start_code::StartCode;
use crate::reconcile::store_files::StoreFiles;
use crate::reconcile::{RECONCILE, activity_log, node, store_tail};
use crate::runtime;
use crate::runtime::machine::Machine;
use crate::runtime::manifests::ManifestWatch;
use crate::runtime::token_signer::{claim_signer, token_source};
use crate::store::WakeHint;
use std::panic::resume_unwind;
use std::sync::mpsc::channel;
use std::thread;
use tracing::debug_span;

impl ControlLoop {
    /// Takes over: reads the state of the machine, then of the store, and makes everything due.
    pub fn start(mut api: Api, leadership: Leadership, settings: ControlSettings) -> anyhow::Result<ControlLoop> {
        runtime::allocator::use_mimalloc();
        api.disable_webhooks();
        api.store_mut().allow_reserve(true);
        api.name_writer(RECONCILE);
        let (outbox, inbox) = channel();
        let is_none = settings.node.is_none();
        let pod_network = is_none || runtime::has_pod_network(shim_program(&settings));
        let missing_capabilities: Vec<_> =
            node::missing_capabilities(pod_network || settings.host_network, is_none || runtime::process::has_pidfds())
                .collect();
        let knock = outbox.clone();
        let report = move |report| drop(knock.send(WakeUp::Report(report)));
        let machine = open_machine(&mut api, leadership.epoch, &settings, &missing_capabilities, report)?;
        let knock = outbox.clone();
        let hint = WakeHint::spawn(api.store().path(), move || drop(knock.send(WakeUp::Store)));
        let knock = outbox.clone();
        let report = move |files| drop(knock.send(WakeUp::Manifests(files)));
        let manifests = settings.manifests.as_deref().map(|folder| ManifestWatch::watch(folder, report)).transpose()?;
        let (manifests, files) = manifests.map_or_else(Default::default, |(manifests, files)| (Some(manifests), files));
        let name = settings.node.as_ref().map(|node| Str::from(node.name.as_str()));
        let mut plane = ControlPlane::with_loops(settings.loops.clone(), name, Time::now());
        let answers = outbox.clone();
        plane.waiting_plans.ask_webhooks(move |item, id, answer| drop(answers.send(WakeUp::Answer(item, id, answer))));
        let mut control = ControlLoop {
            plane,
            machine,
            inbox,
            outbox,
            _hint: hint,
            _manifests: manifests,
            stopping: false,
            is_elected: false,
            log_may_have_changed: true,
            compacting: false,
            files: StoreFiles::identify(api.store().path()),
            blocked: None,
            start_code: StartCode::new(),
            reserve: DiskReserve::default(),
            api,
            settings,
            leadership,
        };
        control.configure(pod_network)?;
        control.provide_link_certificates()?;
        for missing in &missing_capabilities {
            control.plane.log_text(Time::now(), missing.message);
        }
        control.note_settings()?;
        control.files = StoreFiles::identify(control.api.store().path());
        control.plane.read_static_manifests(&files, Time::now());
        control.load()?;
        control.api.store_mut().allow_reserve(false);
        // Before any pod can fill the disk.
        control.keep_reserve(MAX_RESERVE_WAIT, Time::now());
        control.log_unknown_processes();
        control.plane.log_missing_capabilities(&missing_capabilities, Time::now());
        Ok(control)
    }

    /// Gives the machine the keys and ports of the cluster, and the World the settings and the abilities of the machine.
    fn configure(&mut self, pod_network: bool) -> anyhow::Result<()> {
        // Makes the keys of a new cluster, so that the World can be loaded with its authority.
        let keys = retry_until_writable(|| Ok(self.api.keys()?))?;
        let settings = &mut self.plane.world.settings;
        settings.claim_signer = Some(claim_signer(keys.signer.clone()));
        settings.certificate_signer = Some(keys.certificate_signer()?);
        settings.backoff_cap_seconds = self.settings.backoff_cap_seconds;
        settings.ready_after = kubelet::READY_AFTER;
        settings.private_files = self.machine.as_ref().is_none_or(Machine::has_private_files);
        if let Some(machine) = &mut self.machine {
            let source = self.settings.token_source.clone();
            machine.take_tokens_from(source.unwrap_or_else(|| token_source(keys.signer.clone())));
            machine.open_node_ports(&self.settings.node_ports);
            settings.runs_as = machine.runs_as();
            settings.lowest_port = machine.lowest_port();
            settings.resolv_conf = machine.resolver();
            settings.limits_unavailable = machine.unenforced_limits_reason();
        }
        settings.pod_network = pod_network && !self.settings.host_network;
        settings.host_uses_services = pod_network && self.settings.host_network;
        settings.pod_api = self.settings.pod_api.map(|address| address.to_string().into());
        settings.pids_per_pod = self.settings.pids_per_pod;
        settings.eviction = self.settings.eviction.clone();
        settings.memory_bytes = self.settings.node.as_ref().map_or(0, |node| node.memory);
        Ok(())
    }

    /// Gives the machine its certificates for links to other machines: from the source in the settings, or else issued with the cluster's
    /// keys.
    fn provide_link_certificates(&mut self) -> anyhow::Result<()> {
        let (Some(machine), Some(node)) = (&mut self.machine, &self.settings.node) else { return Ok(()) };
        match (&self.settings.link_certificates, node.link_address) {
            (Some(feed), _) => {
                let outbox = self.outbox.clone();
                // A control loop that has ended needs none.
                feed.subscribe(move |new| drop(outbox.send(WakeUp::LinkCertificates(Box::new(new)))));
            }
            (None, Some(address)) => {
                let keys = retry_until_writable(|| Ok(self.api.keys()?))?;
                machine.set_link_certificates(keys.link_certificates(&node.name, address.ip())?);
            }
            (None, None) => {}
        }
        Ok(())
    }

    /// Logs that pods of an earlier cluster, whose folder was removed, still run. No control plane manages them.
    fn log_unknown_processes(&mut self) {
        let groups = self.machine.as_ref().map(Machine::unknown_cgroups).unwrap_or_default();
        let Some(text) = activity_log::unknown_processes(groups) else { return };
        self.plane.log_text(Time::now(), &text);
    }

    /// Loads the World from the store, and the facts of the machine.
    pub(super) fn load(&mut self) -> anyhow::Result<()> {
        let _span = debug_span!("load").entered();
        let (machine, plane, snapshot) = (&mut self.machine, &mut self.plane, self.api.store().read()?);
        let backoff = self.settings.backoff_seconds;
        thread::scope(|scope| {
            // Reading the records of the shims takes as long as reading the store.
            let work = || machine.as_mut().map(Machine::inventory).unwrap_or_default();
            let reading = thread::Builder::new().name("inventory".into()).spawn_scoped(scope, work)?;
            let inventory = || reading.join().unwrap_or_else(|panic| resume_unwind(panic));
            Ok::<_, anyhow::Error>(plane.load(&snapshot, inventory, backoff, Time::now())?)
        })?;
        drop(snapshot);
        store_tail::compile_all(&self.plane.world, &self.plane.loops);
        Ok(())
    }
}
