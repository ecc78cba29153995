"""What is learned: MDPs, policies, federations of agents and the chains that they walk."""
