//! One run of the dashboard: waits for keys and changes, and draws when there is something new.
//!
//! Start reading at [`show`].

use super::commands::{DashCommand, command};
use super::model::text_pane::TextPane;
use super::model::{ControlPlaneFact, DashAction, DashModel, LoopLine};
use super::terminal::DashTerminal;
use super::view::Palette;
use super::waker::{self, WakeReceiver, Waker};
use crate::cli::cluster::world_follower::WorldFollower;
use crate::cli::{CliResult, CommandContext, Failure};
use crate::object::Time;
use crate::reconcile::leader;
use crate::reconcile::metrics::PublishedMetrics;
use crate::runtime::folder;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGWINCH};
use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Minimum time between two reads of the state; longer while reads take long.
const MIN_READ_INTERVAL: Duration = Duration::from_millis(100);

/// Shortest time between two drawings.
const FRAME_INTERVAL: Duration = Duration::from_millis(25);

/// Reading the state takes at most this fraction of the time: one part in ten.
const TIME_SHARE_DIVISOR: u32 = 10;

/// Time after which the ages on the screen are drawn again.
const AGE_REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// Time after which the ages are drawn again once all of them are older than two minutes.
const OLD_AGES: Duration = Duration::from_secs(30);

/// A run of the dashboard.
struct DashSession<'a> {
    context: &'a mut CommandContext,
    cluster: Vec<OsString>,
    model: DashModel,
    waker: Waker,
    /// The command whose output is shown, and the one that changes something.
    shown: Option<DashCommand>,
    change: Option<(DashCommand, String)>,
    /// Whether the state may have changed.
    is_stale: Arc<AtomicBool>,
    looked: Instant,
    drawn: Instant,
    look_took: Duration,
    follower: WorldFollower,
}

/// Shows the dashboard until the user ends it.
pub fn show(context: &mut CommandContext) -> CliResult {
    let (waker, receiver) = waker::pair()?;
    let signal = Arc::new(AtomicUsize::new(0));
    for number in [SIGTERM, SIGHUP, SIGINT] {
        signal_hook::flag::register_usize(number, signal.clone(), number as usize)?;
    }
    for number in [SIGTERM, SIGHUP, SIGINT, SIGWINCH] {
        signal_hook::low_level::pipe::register(number, waker.pipe()?)?;
    }
    let mut session = DashSession::start(context, waker)?;
    let may_colour = std::env::var_os("NO_COLOR").is_none_or(|text| text.is_empty());
    let mut terminal = DashTerminal::open(Palette::new(may_colour))?;
    let ended = session.run(&mut terminal, receiver, &signal);
    drop(terminal);
    ended?;
    match signal.load(Ordering::Relaxed) {
        0 => Ok(()),
        number => Err(Failure::Code(128 + number as u8)),
    }
}

impl<'a> DashSession<'a> {
    fn start(context: &'a mut CommandContext, waker: Waker) -> CliResult<DashSession<'a>> {
        let is_stale = Arc::new(AtomicBool::new(false));
        let (flag, wake) = (is_stale.clone(), waker.clone());
        let follower = WorldFollower::start(context, move || {
            // The session was woken for an earlier change already, and has not handled it yet.
            if !flag.swap(true, Ordering::AcqRel) {
                wake.wake();
            }
        })?;
        let namespace = context.globals.namespace.clone().filter(|namespace| !namespace.is_empty());
        let world = follower.load(context)?;
        let mut session = DashSession {
            cluster: context.cluster_arguments()?,
            model: DashModel::new(world, namespace),
            context,
            waker,
            shown: None,
            change: None,
            is_stale,
            looked: Instant::now(),
            drawn: Instant::now(),
            look_took: Duration::ZERO,
            follower,
        };
        session.model.facts.cluster = session.context.cluster_place()?;
        session.read_facts()?;
        Ok(session)
    }

    fn run(&mut self, terminal: &mut DashTerminal, mut wakes: WakeReceiver, signal: &AtomicUsize) -> CliResult {
        loop {
            let is_due = self.looked.elapsed() >= self.pause();
            if is_due && self.is_stale.swap(false, Ordering::AcqRel) {
                self.look()?;
            }
            self.take_output();
            self.model.world.now = Time::now();
            self.read_processes();
            // A fast log wakes it with each line.
            thread::sleep(FRAME_INTERVAL.saturating_sub(self.drawn.elapsed()));
            self.drawn = Instant::now();
            terminal.draw(&mut self.model)?;
            if wakes.wait(Some(self.longest_wait()))? || signal.load(Ordering::Relaxed) != 0 {
                return Ok(());
            }
            while event::poll(Duration::ZERO)? {
                let action = match event::read()? {
                    Event::Key(key) if key.kind != KeyEventKind::Release => self.model.handle_key(key),
                    Event::Mouse(mouse) => {
                        self.model.handle_mouse(mouse);
                        None
                    }
                    _ => None,
                };
                if let Some(action) = action
                    && self.carry_out(action, terminal)?
                {
                    return Ok(());
                }
            }
        }
    }

    /// Minimum time until the next read of the state.
    fn pause(&self) -> Duration {
        MIN_READ_INTERVAL.max(self.look_took * TIME_SHARE_DIVISOR)
    }

    /// Longest time until something is drawn again.
    fn longest_wait(&self) -> Duration {
        if self.is_stale.load(Ordering::Acquire) {
            return self.pause().saturating_sub(self.looked.elapsed());
        }
        let now = self.model.now();
        let is_young = |time: Option<Time>| time.is_some_and(|time| now.duration_since(time).as_secs() < 120);
        let visible = self.model.list.visible();
        let mut rows = self.model.rows()[visible].iter();
        let is_any_young = rows.any(|row| is_young(self.model.node(row).created));
        if is_any_young { AGE_REFRESH_INTERVAL } else { OLD_AGES }
    }

    /// Reads the changes of the state.
    fn look(&mut self) -> CliResult {
        let started = Instant::now();
        let before = self.model.world.revision;
        self.follower.catch_up(self.context, &mut self.model.world)?;
        if let Some(failure) = self.follower.take_failure() {
            self.model.notify(failure, true);
        }
        if self.model.world.revision != before {
            self.model.refresh();
        }
        self.read_facts()?;
        self.looked = Instant::now();
        self.look_took = started.elapsed();
        Ok(())
    }

    /// Reads the leader and its queues.
    fn read_facts(&mut self) -> CliResult {
        let home = self.context.home()?;
        let facts = &mut self.model.facts;
        let Some(home) = home else {
            facts.control_plane = ControlPlaneFact::AtServer;
            return Ok(());
        };
        facts.control_plane = leader::read_leader(&home).map_or(ControlPlaneFact::Stopped, ControlPlaneFact::Leads);
        if let Some(sample) = PublishedMetrics::read(&home) {
            facts.ticks = Some((sample.ticks, sample.rows, sample.seconds));
            facts.loops = sample.depths.into_iter().map(|(name, depth)| LoopLine { name, depth }).collect();
        }
        Ok(())
    }

    /// Reads the process IDs of visible containers.
    fn read_processes(&mut self) {
        let Ok(Some(home)) = self.context.home() else { return };
        let visible = self.model.list.visible();
        let rows = self.model.rows()[visible].iter().filter(|row| row.container.is_some());
        let found = rows.filter_map(|row| {
            let id = self.model.id_of(row);
            let uid = self.model.world.get(&id.0)?.body().local_uid().to_owned();
            let process = folder::main_process(&home, &uid, id.1.as_deref()?)?;
            Some((id, process.pid))
        });
        self.model.facts.processes = found.collect();
    }

    /// Takes the output of commands.
    fn take_output(&mut self) {
        if let (Some(command), Some(pane)) = (&mut self.shown, &mut self.model.pane) {
            command.take_lines().iter().for_each(|line| pane.add(line));
            if command.ended().is_some() {
                pane.is_running = false;
                if pane.position().1 == 0 {
                    pane.add("(nothing)");
                }
                self.shown = None;
            }
        }
        if let Some((command, last)) = &mut self.change {
            if let Some(line) = command.take_lines().into_iter().rfind(|line| !line.is_empty()) {
                *last = line;
            }
            if let Some(status) = command.ended() {
                self.model.notify(std::mem::take(last), !status.success());
                self.change = None;
            }
        }
    }

    /// Carries out an action; true at the end.
    fn carry_out(&mut self, action: DashAction, terminal: &mut DashTerminal) -> CliResult<bool> {
        match action {
            DashAction::Quit => return Ok(true),
            DashAction::StopShowing => self.shown = None,
            DashAction::Show { title, arguments, follows } => {
                let height = usize::from(self.model.areas().pane.height);
                self.model.pane = Some(TextPane::new(title, follows, height));
                let command = command(&self.cluster, &arguments);
                self.shown = Some(DashCommand::start(command, &self.waker)?);
            }
            DashAction::Change(_) if self.change.is_some() => {
                self.model.notify("the last change is still being made".to_owned(), true);
            }
            DashAction::Change(arguments) => {
                let command = command(&self.cluster, &arguments);
                self.change = Some((DashCommand::start(command, &self.waker)?, String::new()));
            }
            DashAction::Interactive(arguments) => {
                let mut command = command(&self.cluster, &arguments);
                let status = terminal.suspend_during(|| command.status())??;
                if !status.success() {
                    let code = status.code().unwrap_or_default();
                    self.model.notify(format!("the command ended with exit code {code}"), true);
                }
            }
        }
        Ok(false)
    }
}
