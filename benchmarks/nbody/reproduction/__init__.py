"""What is run and how it is judged: experiments, claims of the paper, and the page on both."""
