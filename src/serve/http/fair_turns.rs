//! Turns that clients take one after the other: a client with many requests waits for itself and not the others for it.
//!
//! Each client has a queue of bounded length, and the queues are served in rotation, as by the priority and fairness of Kubernetes.
//! Knows no request. Start reading at [`FairTurns::wait_for`].

use super::connections::Client;
use crate::object::{IgnorePoison, Status};
use crate::serve::answer::too_many_requests;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::oneshot::{Receiver, Sender, channel};

/// Maximum number of requests of one client that wait.
const MAX_QUEUED: usize = 1000;

/// Turns that limit the number of concurrent pieces of work.
pub struct FairTurns(Mutex<Queues>);

#[derive(Default)]
struct Queues {
    free: usize,
    waiting: HashMap<Arc<Client>, VecDeque<Sender<FairTurn>>>,
    /// The clients that wait, in the order in which they get turns.
    rotation: VecDeque<Arc<Client>>,
}

/// One turn. Dropping it gives the turn to the next client.
pub struct FairTurn(Option<Arc<FairTurns>>);

impl FairTurns {
    /// Makes this many turns.
    pub fn new(count: usize) -> Arc<FairTurns> {
        Arc::new(FairTurns(Mutex::new(Queues { free: count, ..Queues::default() })))
    }

    /// Waits for a turn. An error is the answer when too many requests of the client wait already.
    pub async fn wait_for(self: &Arc<FairTurns>, client: &Arc<Client>) -> Result<FairTurn, Status> {
        self.join(client, MAX_QUEUED)?.wait().await
    }

    /// Like [`FairTurns::wait_for`], for work that has begun: the queue's limit does not refuse it.
    pub fn wait_again(
        self: &Arc<FairTurns>,
        client: &Arc<Client>,
    ) -> impl Future<Output = Result<FairTurn, Status>> + use<> {
        let place = self.join(client, usize::MAX);
        async { place?.wait().await }
    }

    /// Takes a free turn, or a place in the client's queue.
    fn join(self: &Arc<FairTurns>, client: &Arc<Client>, most: usize) -> Result<Place, Status> {
        let mut queues = self.lock();
        if queues.free > 0 {
            queues.free -= 1;
            return Ok(Place::Turn(FairTurn(Some(self.clone()))));
        }
        let (tell, told) = channel();
        match queues.waiting.get_mut(client) {
            Some(queue) if queue.len() >= most => {
                return Err(too_many_requests("too many requests of this client wait"));
            }
            Some(queue) => queue.push_back(tell),
            None => {
                queues.waiting.insert(client.clone(), VecDeque::from([tell]));
                queues.rotation.push_back(client.clone());
            }
        }
        Ok(Place::Queue(told))
    }

    /// Gives a turn to the next client that still waits for it.
    fn pass_on(self: Arc<FairTurns>) {
        loop {
            let Some(next) = self.lock().take_next() else { return };
            match next.send(FairTurn(Some(self.clone()))) {
                Ok(()) => return,
                // Its request has ended: the same turn is for the one after it.
                Err(mut turn) => drop(turn.0.take()),
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.0.lock().ignore_poison()
    }
}

/// A turn, or a place in a queue.
enum Place {
    Turn(FairTurn),
    Queue(Receiver<FairTurn>),
}

impl Place {
    async fn wait(self) -> Result<FairTurn, Status> {
        match self {
            Place::Turn(turn) => Ok(turn),
            // The queues live as long as the server.
            Place::Queue(told) => told.await.map_err(|_| too_many_requests("the server ends")),
        }
    }
}

impl Queues {
    /// Removes and returns the first request of the next client; counts a free turn if no client waits.
    fn take_next(&mut self) -> Option<Sender<FairTurn>> {
        let Some(client) = self.rotation.pop_front() else {
            self.free += 1;
            return None;
        };
        let queue = self.waiting.get_mut(&client)?;
        let next = queue.pop_front();
        if queue.is_empty() {
            self.waiting.remove(&client);
        } else {
            self.rotation.push_back(client);
        }
        next
    }
}

impl Drop for FairTurn {
    fn drop(&mut self) {
        if let Some(turns) = self.0.take() {
            turns.pass_on();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::peer::Peer;

    fn client(user: &str) -> Arc<Client> {
        Arc::new(Client { user: user.into(), peer: Peer::User(1) })
    }

    fn queue(turns: &Arc<FairTurns>, user: &str) -> Receiver<FairTurn> {
        match turns.join(&client(user), MAX_QUEUED) {
            Ok(Place::Queue(told)) => told,
            _ => panic!("{user} does not wait"),
        }
    }

    #[test]
    fn clients_take_turns_in_rotation() {
        let turns = FairTurns::new(1);
        let Ok(Place::Turn(held)) = turns.join(&client("ann"), MAX_QUEUED) else { panic!("it is not free") };
        let mut waiting: Vec<_> = ["ann", "ann", "ann", "bob", "bob"].iter().map(|user| queue(&turns, user)).collect();
        let mut held = Some(held);
        for next in [0, 3, 1, 4, 2] {
            drop(held.take());
            let got: Vec<usize> = (0..waiting.len())
                .filter(|index| waiting[*index].try_recv().is_ok_and(|turn| held.replace(turn).is_none()))
                .collect();
            assert_eq!(got, [next]);
        }
        drop(held);
        assert!(matches!(turns.join(&client("bob"), MAX_QUEUED), Ok(Place::Turn(_))), "it is free again");
    }

    #[test]
    fn turn_of_an_ended_request_goes_to_the_next() {
        let turns = FairTurns::new(1);
        let Ok(Place::Turn(held)) = turns.join(&client("ann"), MAX_QUEUED) else { panic!("it is not free") };
        let (ended, told, mut last) = (queue(&turns, "ann"), queue(&turns, "bob"), queue(&turns, "ann"));
        drop(ended);
        drop(held);
        // The turn is sent, but not yet received, when its request ends.
        drop(told);
        assert!(last.try_recv().is_ok());
        assert_eq!(turns.lock().free, 1);
    }

    #[test]
    fn queue_of_a_client_has_a_bound() {
        let turns = FairTurns::new(0);
        let waiting: Vec<_> = (0..MAX_QUEUED).map(|_| queue(&turns, "ann")).collect();
        assert!(turns.join(&client("ann"), MAX_QUEUED).is_err_and(|status| status.code() == 429));
        assert!(turns.join(&client("ann"), usize::MAX).is_ok(), "work that has begun is not refused");
        drop((waiting, queue(&turns, "bob")));
    }
}
