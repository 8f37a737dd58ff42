"""Which spaces have objects of a kind: named conditions, which the table of kinds refers to."""

from anygatr.spaces.space import Space


def anywhere(space: Space) -> bool:
    """Every space."""
    return True


def nowhere(space: Space) -> bool:
    """No space: others stand for it everywhere."""
    return False


def with_points(space: Space) -> bool:
    """Spaces that say what a point is."""
    return space.point is not None


def with_oriented_points(space: Space) -> bool:
    """Spaces whose points are more than vectors."""
    return with_points(space) and space.has_infinity


def with_infinity(space: Space) -> bool:
    """Spaces in which translations move something."""
    return space.has_infinity


def with_lines(space: Space) -> bool:
    """Spaces in which a line is not everything."""
    return space.has_infinity and len(space.axes) > 1


def with_rotations(space: Space) -> bool:
    """Spaces of the dimensions in which a rotation is an angle or a quaternion."""
    return space.dim in (2, 3)


def with_motors(space: Space) -> bool:
    """Spaces with rotations and translations."""
    return space.has_infinity and with_rotations(space)


def with_spheres(space: Space) -> bool:
    """Spaces with a null vector o."""
    return space.has_o


def with_circles(space: Space) -> bool:
    """Spaces in which a plane cuts a sphere in a circle."""
    return space.has_o and len(space.axes) == 3


def with_time(space: Space) -> bool:
    """Spacetimes."""
    return space.time is not None
