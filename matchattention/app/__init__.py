"""The page in the browser: two images in, depth to look at, turn and take away.

`server` starts it, `page` is what people see, `session` is what one of them has given and got. Images arrive through
`uploads` and `routes`; `worker` computes one pair after another beside the page; `result` makes the files and views.
"""
