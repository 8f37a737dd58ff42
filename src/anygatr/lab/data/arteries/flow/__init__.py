"""Steady Navier-Stokes flow in a tube by finite elements: mesh, element integrals, linear and nonlinear solvers, wall."""
