//! Functions that answer calls.

use std::pin::Pin;

use axum::response::Response;

use crate::{Error, call::Call, list};

type Answering = Pin<Box<dyn Future<Output = Result<Response, Error>> + Send>>;

/// Function that answers the calls of a route.
pub struct Handler(Box<dyn Fn(Call) -> Answering + Send + Sync>);

impl Handler {
    /// Answers at once, of what is in memory.
    pub fn at_once(
        answer: impl Fn(&Call) -> Result<Response, Error> + Clone + Send + Sync + 'static,
    ) -> Handler {
        Handler::waiting(move |call| {
            let answer = answer.clone();
            async move { answer(&call) }
        })
    }

    /// Makes an answer that may be long, or take looking through everything, [`aside`].
    pub fn aside(
        answer: impl Fn(&Call) -> Result<Response, Error> + Clone + Send + Sync + 'static,
    ) -> Handler {
        Handler::waiting(move |call| aside(call, answer.clone()))
    }

    /// Waits for something: a body, a write, a proxy.
    pub fn waiting<A>(answer: impl Fn(Call) -> A + Send + Sync + 'static) -> Handler
    where
        A: Future<Output = Result<Response, Error>> + Send + 'static,
    {
        Handler(Box::new(move |call| Box::pin(answer(call))))
    }

    pub(super) async fn answer(&self, call: Call) -> Result<Response, Error> {
        (self.0)(call).await
    }
}

/// Makes an answer where other requests do not wait for it, and when it is its turn.
pub async fn aside(
    call: Call,
    answer: impl FnOnce(&Call) -> Result<Response, Error> + Send + 'static,
) -> Result<Response, Error> {
    let context = call.context.clone();
    let turn = context.gates.turn().await;
    let answered = tokio::task::spawn_blocking(move || {
        let answer = answer(&call);
        // A client that gives up does not end the work, so the turn ends with the work.
        drop(turn);
        answer
    });
    answered.await.map_err(|error| Error::Internal { title: list::TITLE, cause: error.to_string() })?
}
