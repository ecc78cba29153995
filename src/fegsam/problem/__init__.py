"""What is learned: Markov decision processes, policies, federations of agents and the chains they
walk."""
