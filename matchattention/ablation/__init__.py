"""The paper's evidence by one command: every row of its ablation tables under one budget, and its figures."""
