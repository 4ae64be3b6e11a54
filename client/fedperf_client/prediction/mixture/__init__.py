"""How learners are weighted by the questions at hand, and how sure the mix is."""
